"""Frames of other makers on a live bus: received, filtered and sent as events of the types of a database.

`databases` are the types and their frames, `filters` the acceptance filters for them, `receiver` and `sender` the two
directions, `machine` puts these together for a driver, beside a Genus node if there is one, and `link` gives them to a
bus.
"""
