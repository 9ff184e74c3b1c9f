"""Functions of a user's job: one input, two inputs, sources and sinks in their short form."""
