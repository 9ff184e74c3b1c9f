"""Sources and sinks that need the driver: splits that it finds, commits that it makes, and the threads for both."""
