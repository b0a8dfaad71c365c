"""The mirror: the tables of a lake in the open table formats, over the same Parquet files; needs no Spark."""
