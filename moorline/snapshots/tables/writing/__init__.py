"""Making savepoints from tables, from DataFrames and from other snapshots."""
