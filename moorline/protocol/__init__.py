"""Decisions, sans I/O: no clock, no thread, no file, no log. Facts go in, actions come out."""
