"""State kept in PostgreSQL."""
