"""Snapshots as tables: reading them, comparing them and making them, all without Spark.

``moorline/spark/tables.py`` shows the same tables as DataFrames.
"""
