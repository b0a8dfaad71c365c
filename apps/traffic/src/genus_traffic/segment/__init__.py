"""A site's CAN segment, simulated bit by bit: sensors, velocity monitor, gateway, and the refit."""
