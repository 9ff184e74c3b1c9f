"""Durable snapshots: where they lie and how they are written and read. Reports facts, decides nothing."""
