"""Bits and bytes on the bus: identifiers, frames, lengths, payloads and segments. Pure functions."""
