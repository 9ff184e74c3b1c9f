"""Books of a simulated run, and what is checked with them."""
