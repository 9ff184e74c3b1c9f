"""Operators of a chain: functions, process functions, sources, sinks, time."""
