"""Decisions about the ends of a job: splits that the driver finds, commits that it makes."""
