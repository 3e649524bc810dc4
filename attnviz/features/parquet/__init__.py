"""Maps as Parquet, a row a text."""
