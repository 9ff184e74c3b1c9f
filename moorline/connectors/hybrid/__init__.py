"""One source after the other."""
