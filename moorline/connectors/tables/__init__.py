"""Tables that take whole Parquet files: common to Delta and Iceberg."""
