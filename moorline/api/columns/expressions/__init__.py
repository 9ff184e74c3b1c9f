"""Expressions over the columns of a batch, such as ``mo.col("cents") / 100``."""
