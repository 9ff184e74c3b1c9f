"""Types of stored values: annotations, encodings, names in a manifest."""
