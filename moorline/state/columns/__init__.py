"""Keyed state in columns: one array for each thing that is kept, and a slot for each key."""
