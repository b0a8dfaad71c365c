"""What the site needs beyond its plugins."""
