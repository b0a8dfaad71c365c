"""Publishing and subscribing: buses, collections, inboxes, channels, and recordings of what was published."""

from typing import TYPE_CHECKING

from genus._lazy import lazy
from genus.bus._bus import Bus
from genus.bus._channel import EventChannel
from genus.bus._collection import Collection
from genus.bus._link import BestEffort, Capabilities, Hard, Link, Publisher, Soft, format_qos, parse_qos
from genus.bus._listener import Inbox, Listener
from genus.bus._open import open_bus, register_link, shown_address

if TYPE_CHECKING:
    from genus.bus._codec import parse_event
    from genus.bus._folder_recorder import LandingFolder, record_to_folder
    from genus.bus._recorder import record
    from genus.bus._recording import read_recording, replay
    from genus.bus._recording_writer import RecordingWriter
    from genus.bus._requests import Declined, Reply

__all__ = [
    "BestEffort",
    "Bus",
    "Capabilities",
    "Collection",
    "Declined",
    "EventChannel",
    "Hard",
    "Inbox",
    "LandingFolder",
    "Link",
    "Listener",
    "Publisher",
    "RecordingWriter",
    "Reply",
    "Soft",
    "format_qos",
    "open_bus",
    "parse_event",
    "parse_qos",
    "read_recording",
    "record",
    "record_to_folder",
    "register_link",
    "replay",
    "shown_address",
]

if not TYPE_CHECKING:
    __getattr__ = lazy(__name__)
