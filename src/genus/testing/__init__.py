"""Helpers for tests, shipped with Genus: a clock to move by hand; types, events and subscriptions from a seed."""

from genus.testing.clock import VirtualClock
from genus.testing.generators import Generator, Sampler, edge_events, edge_subscriptions

__all__ = ["Generator", "Sampler", "VirtualClock", "edge_events", "edge_subscriptions"]
