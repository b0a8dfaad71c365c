"""Genus: typed publish/subscribe. Subscribe to what events are, have and say."""

from typing import TYPE_CHECKING

from genus._lazy import lazy
from genus.errors import GenusError
from genus.filters import Subscription, all_of, coalesce, this, when
from genus.model import (
    Event,
    Float32,
    Int8,
    Int16,
    Int32,
    Int64,
    Kind,
    Maybe,
    Renamed,
    Span,
    UInt8,
    UInt16,
    UInt32,
    Unit,
    check,
)

if TYPE_CHECKING:
    from genus.bus import (
        BestEffort,
        Bus,
        Collection,
        EventChannel,
        Hard,
        Inbox,
        Listener,
        Soft,
        open_bus,
        read_recording,
        record,
        replay,
    )
    from genus.catalog import Catalog

__version__ = "0.1.0"

__all__ = [
    "BestEffort",
    "Bus",
    "Catalog",
    "Collection",
    "Event",
    "EventChannel",
    "Float32",
    "GenusError",
    "Hard",
    "Inbox",
    "Int8",
    "Int16",
    "Int32",
    "Int64",
    "Kind",
    "Listener",
    "Maybe",
    "Renamed",
    "Soft",
    "Span",
    "Subscription",
    "UInt8",
    "UInt16",
    "UInt32",
    "Unit",
    "all_of",
    "check",
    "coalesce",
    "open_bus",
    "read_recording",
    "record",
    "replay",
    "this",
    "when",
]


if not TYPE_CHECKING:
    __getattr__ = lazy(__name__)
