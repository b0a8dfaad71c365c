"""The report of a run: one HTML file, made from templates, that needs no network."""
