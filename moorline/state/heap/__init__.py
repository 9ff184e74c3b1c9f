"""State in memory: Python dicts by key, snapshots as rows."""
