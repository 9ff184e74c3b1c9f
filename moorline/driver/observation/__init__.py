"""A job as it can be watched: rates of its subtasks, and the history of its checkpoints and attempts."""
