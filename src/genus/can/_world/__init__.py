"""Simulated worlds: programs and whole systems on a simulated bus, under faults, and the outcome."""
