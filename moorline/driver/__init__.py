"""Effects on the driver's side: one loop that triggers, publishes, restarts."""
