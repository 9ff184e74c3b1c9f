"""State in RocksDB: one column of bytes by key group, key and state."""
