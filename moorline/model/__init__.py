"""Nouns: what the layers talk about. Nothing here decides or performs anything."""
