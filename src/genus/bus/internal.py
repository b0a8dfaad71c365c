"""What other rooms of Genus use of this one, beside its public names. Not for programs: it changes without notice."""

from typing import TYPE_CHECKING

from genus._lazy import lazy

if TYPE_CHECKING:
    from genus.bus._attribute_map import (
        UNITS_OF,
        Convert,
        MapReader,
        UnreadValues,
        converter,
        decode_units,
        in_unit,
        plain_unread,
        units_of,
        unwrap_map,
        value_at,
    )
    from genus.bus._block_events import ReadBlock, events_in
    from genus.bus._blocks import BLOCKS, HEADER, block_at, find_format
    from genus.bus._bus import Wanted, as_subscription
    from genus.bus._clock import SystemClock, datetime_of
    from genus.bus._codec import EventDecoder, Rejected, encode_event, packet_of
    from genus.bus._frames import FORMAT, FileBytes, Frame, FrameFormat, Octets, frames_in
    from genus.bus._link import WaitFor, end_nothing, qos_of
    from genus.bus._recording_index import index_of
    from genus.bus._router import SubscriptionCounters

if not TYPE_CHECKING:
    __getattr__ = lazy(__name__)
