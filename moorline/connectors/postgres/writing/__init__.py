"""Into a table of PostgreSQL: rows that wait in a checkpoint, and one transaction that holds them with a marker."""
