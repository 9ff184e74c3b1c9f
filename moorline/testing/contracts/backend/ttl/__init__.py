"""The contract of state that expires."""
