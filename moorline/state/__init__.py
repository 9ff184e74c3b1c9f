"""Live state: typed states over a backend, and the types they are stored as."""
