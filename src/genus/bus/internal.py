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
    from genus.bus._block_index import index_of
    from genus.bus._blocks import HEADER, block_at
    from genus.bus._clock import SystemClock, datetime_of
    from genus.bus._codec import EventDecoder, Rejected, encode_event, packet_of
    from genus.bus._formats import BLOCKS, find_format
    from genus.bus._frames import FORMAT, FileBytes, Frame, FrameFormat, Octets, frames_in
    from genus.bus._link import WaitFor, end_nothing
    from genus.bus._qos import qos_of
    from genus.bus._traffic import SubscriptionCounters

__all__ = [
    "BLOCKS",
    "FORMAT",
    "HEADER",
    "UNITS_OF",
    "Convert",
    "EventDecoder",
    "FileBytes",
    "Frame",
    "FrameFormat",
    "MapReader",
    "Octets",
    "ReadBlock",
    "Rejected",
    "SubscriptionCounters",
    "SystemClock",
    "UnreadValues",
    "WaitFor",
    "block_at",
    "converter",
    "datetime_of",
    "decode_units",
    "encode_event",
    "end_nothing",
    "events_in",
    "find_format",
    "frames_in",
    "in_unit",
    "index_of",
    "packet_of",
    "plain_unread",
    "qos_of",
    "units_of",
    "unwrap_map",
    "value_at",
]

if not TYPE_CHECKING:
    __getattr__ = lazy(
        "genus.bus",
        _attribute_map=(
            "Convert MapReader UNITS_OF UnreadValues converter decode_units in_unit plain_unread units_of "
            "unwrap_map value_at"
        ),
        _block_events="ReadBlock events_in",
        _block_index="index_of",
        _blocks="HEADER block_at",
        _clock="SystemClock datetime_of",
        _codec="EventDecoder Rejected encode_event packet_of",
        _formats="BLOCKS find_format",
        _frames="FORMAT FileBytes Frame FrameFormat Octets frames_in",
        _link="WaitFor end_nothing",
        _qos="qos_of",
        _traffic="SubscriptionCounters",
    )
