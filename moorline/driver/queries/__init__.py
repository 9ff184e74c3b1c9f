"""Queries of live state: asked on any thread, answered by subtasks."""
