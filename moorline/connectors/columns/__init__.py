"""Texts and bytes from outside as columns of a schema: a block at once where that can be, value by value otherwise."""
