"""Stored types that have changed: the plan, the conversions, values without their class."""
