"""Snapshots of a subtask: capture, in-flight records, writing, acknowledging."""
