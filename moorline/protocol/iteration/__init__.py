"""Decisions about loops: which records belong to a snapshot, and when a loop is empty."""
