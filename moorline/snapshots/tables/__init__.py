"""Snapshots as tables: reading them, comparing them and making them (``writing/``), all without Spark.

``moorline/spark/tables.py`` shows the same tables as DataFrames.
"""
