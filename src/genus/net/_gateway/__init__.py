"""Gateways: a machine without I/O, the sides that it carries events between, and what drives both."""
