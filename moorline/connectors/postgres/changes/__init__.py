"""Changes of PostgreSQL tables, from its log."""
