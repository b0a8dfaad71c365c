"""Publishing and subscribing: buses, collections, inboxes, channels, and recordings of what was published."""

from typing import TYPE_CHECKING

from genus._lazy import lazy
from genus.bus._bus import Bus, ErrorHandler
from genus.bus._channel import EventChannel
from genus.bus._clock import LateStart, PeriodicTask, TaskTiming, TimeReading
from genus.bus._collection import Collection, Flavour, RequestHandler
from genus.bus._link import (
    Capabilities,
    Clock,
    Delivery,
    Link,
    ProblemHandler,
    Publisher,
    SlotTimes,
    Timer,
)
from genus.bus._listener import Counters, Handler, Inbox, Listener
from genus.bus._open import open_bus, register_link, shown_address
from genus.bus._qos import BestEffort, Hard, Keep, QoS, Soft, format_qos, parse_qos
from genus.bus._queue import Overflow
from genus.bus._traffic import Traffic

if TYPE_CHECKING:
    from genus.bus._codec import Recorded
    from genus.bus._folder_recorder import FolderRecorder, LandingFolder, record_to_folder
    from genus.bus._parse_event import parse_event
    from genus.bus._recorder import Recorder, record
    from genus.bus._recording import Excerpt, Recording, read_recording, replay
    from genus.bus._recording_index import RecordingIndex
    from genus.bus._recording_writer import RecordingWriter
    from genus.bus._refusals import Refusals, Refused, WhenInvalid
    from genus.bus._requests import Declined, Reply

__all__ = [
    "BestEffort",
    "Bus",
    "Capabilities",
    "Clock",
    "Collection",
    "Counters",
    "Declined",
    "Delivery",
    "ErrorHandler",
    "EventChannel",
    "Excerpt",
    "Flavour",
    "FolderRecorder",
    "Handler",
    "Hard",
    "Inbox",
    "Keep",
    "LandingFolder",
    "LateStart",
    "Link",
    "Listener",
    "Overflow",
    "PeriodicTask",
    "ProblemHandler",
    "Publisher",
    "QoS",
    "Recorded",
    "Recorder",
    "Recording",
    "RecordingIndex",
    "RecordingWriter",
    "Refusals",
    "Refused",
    "Reply",
    "RequestHandler",
    "SlotTimes",
    "Soft",
    "TaskTiming",
    "TimeReading",
    "Timer",
    "Traffic",
    "WhenInvalid",
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
