"""Subtasks of a bounded job, by Spark's shuffle."""
