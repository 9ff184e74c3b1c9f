"""Configuration of a run: checkpoints, restarts, state, leadership."""
