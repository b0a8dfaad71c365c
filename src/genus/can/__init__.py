"""Event channels on CAN: hard, soft and no real time, planned, simulated under faults, and live."""
