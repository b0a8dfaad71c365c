"""Worked applications: what Genus is for, from sensors to answers."""
