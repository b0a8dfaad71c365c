"""Helpers for tests, shipped with Genus: generators of types, events and subscriptions, all from a seed."""

from genus.testing.generators import Generator, Sampler, edge_events, edge_subscriptions

__all__ = ["Generator", "Sampler", "edge_events", "edge_subscriptions"]
