"""Election of the one driver that leads a job."""
