"""The same protocol code on a real bus, through python-can."""
