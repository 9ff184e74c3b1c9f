"""Files of RocksDB in checkpoints: uploaded, restored, and read as rows."""
