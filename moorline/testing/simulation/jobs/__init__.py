"""Jobs that the simulator runs, and the results of a plain loop over the same input."""
