"""The city's centre: what arrives from all sites is collected, counted and recorded."""
