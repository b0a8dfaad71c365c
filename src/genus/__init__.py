"""Genus: typed publish/subscribe. Subscribe to what events are, have and say."""

from genus.filters import Subscription, all_of, this
from genus.model import Event, Kind, Maybe

__all__ = ["Event", "Kind", "Maybe", "Subscription", "all_of", "this"]
