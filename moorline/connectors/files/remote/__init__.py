"""Files in buckets and on other machines."""
