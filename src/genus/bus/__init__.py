"""Publishing and subscribing: buses, collections, inboxes, and recordings of what went over them."""

from genus.bus._address import open_bus
from genus.bus._bus import Bus, Link, Traffic
from genus.bus._channel import EventChannel
from genus.bus._collection import Collection
from genus.bus._listener import Counters, Inbox, Listener
from genus.bus._qos import Hard, NonReal, Soft
from genus.bus._queue import WhenFull

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
