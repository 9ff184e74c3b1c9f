"""PySpark's Python data sources, driven by Moorline."""
