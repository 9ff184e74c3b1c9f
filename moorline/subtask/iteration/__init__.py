"""Loops in a job: membership, feedback and its lines."""
