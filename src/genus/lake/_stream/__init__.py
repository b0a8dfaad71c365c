"""Followers of a lake: inboxes, derived tables and functions that process new events once, in batch or on a stream."""
