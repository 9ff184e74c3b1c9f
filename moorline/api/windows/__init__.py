"""Windows as a job declares them: assigners, triggers, evictors, functions, joins."""
