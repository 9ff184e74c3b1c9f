"""Messages and records between the processes of a job."""
