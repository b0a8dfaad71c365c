"""A run of the traffic application as one HTML file that needs nothing else: no network, no font, no script."""
