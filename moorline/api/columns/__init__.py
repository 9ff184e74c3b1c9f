"""Streams whose records lie in columns: schemas, aggregates, steps for whole batches."""
