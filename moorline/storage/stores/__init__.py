"""Stores of blobs: local folders, buckets, fsspec, memory."""
