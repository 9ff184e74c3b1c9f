"""Files as source and sink: formats, identities, broken records."""
