"""Values that can change, functions that can change them, and copies of values."""
