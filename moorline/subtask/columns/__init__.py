"""Operators that take whole batches of columns, and how columns travel."""
