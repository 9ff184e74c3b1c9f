"""Operators made anew from a snapshot: state, other keys, other key groups."""
