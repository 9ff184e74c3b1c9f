"""The HTTP side of a running job: requests of other processes, and the answers."""
