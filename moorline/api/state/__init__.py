"""State as a job declares it: kinds, descriptors, time to live, operator state, outside stores."""
