"""Ingest: formats that decode files to columns of events, and the Spark job that writes them to tables."""
