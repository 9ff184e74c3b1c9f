"""Formats of files: those that are read, and those that a sink writes."""
