"""The window operator."""
