"""Which values can change, which functions can change them, and how a value is copied."""
