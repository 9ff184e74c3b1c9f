"""The type of a state as data: what a manifest says of it, and the text that stood there before."""
