"""Vehicles and their speeds, found in the edges of a pair of loops; the same code beside the road and on Spark."""
