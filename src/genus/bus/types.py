"""What calls of `genus.bus` return, and options that programs name in annotations only."""

from typing import TYPE_CHECKING

from genus._lazy import lazy

if TYPE_CHECKING:
    from genus.bus._bus import ErrorHandler
    from genus.bus._clock import LateStart, PeriodicTask, TaskTiming, TimeReading
    from genus.bus._codec import Recorded
    from genus.bus._collection import Flavour, RequestHandler
    from genus.bus._folder_recorder import FolderRecorder
    from genus.bus._link import Clock, Delivery, Keep, ProblemHandler, QoS, SlotTimes, Timer
    from genus.bus._listener import Counters, Handler
    from genus.bus._queue import Overflow
    from genus.bus._recorder import Recorder, Refusals, Refused, WhenInvalid
    from genus.bus._recording import Excerpt, Recording
    from genus.bus._recording_index import RecordingIndex
    from genus.bus._router import Traffic

__all__ = [
    "Clock",
    "Counters",
    "Delivery",
    "ErrorHandler",
    "Excerpt",
    "Flavour",
    "FolderRecorder",
    "Handler",
    "Keep",
    "LateStart",
    "Overflow",
    "PeriodicTask",
    "ProblemHandler",
    "QoS",
    "Recorded",
    "Recorder",
    "Recording",
    "RecordingIndex",
    "Refusals",
    "Refused",
    "RequestHandler",
    "SlotTimes",
    "TaskTiming",
    "TimeReading",
    "Timer",
    "Traffic",
    "WhenInvalid",
]

if not TYPE_CHECKING:
    __getattr__ = lazy(__name__)
