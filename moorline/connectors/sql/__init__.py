"""Any database that SQLAlchemy knows, as a sink."""
