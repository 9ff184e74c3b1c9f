"""State in a store outside of the job, such as PostgreSQL or Redis."""
