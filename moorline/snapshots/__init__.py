"""Everything about a snapshot without a running job."""
