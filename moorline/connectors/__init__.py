"""Sources and sinks, one file per technology."""
