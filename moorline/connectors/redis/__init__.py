"""State kept in Redis."""
