"""Contract suites for parts that others write: backends, stores, sinks, outside state."""
