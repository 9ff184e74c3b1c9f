"""Redis: state that is kept in it, and its streams as sources and sinks."""
