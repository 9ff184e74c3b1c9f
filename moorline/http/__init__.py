"""The HTTP side of a running job: what it tells and is told from other processes."""
