"""Effects on the worker's side: one subtask, from frames in to frames out."""
