"""Publishing and subscribing: buses, collections, inboxes, and recordings of what went over them."""

from genus.bus.address import open_bus
from genus.bus.bus import Bus, Link, Traffic
from genus.bus.collection import Collection
from genus.bus.event_channel import EventChannel
from genus.bus.listener import Counters, Inbox, Listener
from genus.bus.mailbox import WhenFull
from genus.bus.qos import Hard, NonReal, Soft

__all__ = [
    "Bus",
    "Collection",
    "Counters",
    "EventChannel",
    "Hard",
    "Inbox",
    "Link",
    "Listener",
    "NonReal",
    "Soft",
    "Traffic",
    "WhenFull",
    "open_bus",
]
