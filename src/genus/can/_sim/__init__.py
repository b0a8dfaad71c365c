"""The bus in virtual time: controllers, clocks, faults from a seed, a trace to replay and to draw."""
