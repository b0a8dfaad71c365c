"""The bus in virtual time: controllers, clocks, faults from a seed, a trace to save and to draw."""
