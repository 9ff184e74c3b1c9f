"""A table or a query of PostgreSQL, read once: ranges of a key, page by page. What changes is in ``changes/``."""
