"""Event channels on CAN: plan a bus, simulate it under faults, run nodes on it, and read its logs and databases."""

from typing import TYPE_CHECKING

from genus._lazy import lazy

if TYPE_CHECKING:
    from genus.can._dbc import Decoding, decode_log, load_dbc, python_source
    from genus.can._dbc.columns import ColumnDecoder, DecodedFrames, LongColumns
    from genus.can._dbc.j1939 import LongMessages
    from genus.can._j1939 import J1939Id, J1939Name
    from genus.can._j1939_transfer import J1939Broadcast, J1939Receiver, J1939Transfer
    from genus.can._live.services import address_types, open_broker, open_monitor
    from genus.can._logs import read_log
    from genus.can._logs.text_reader import parse_candump
    from genus.can._node.problems import (
        BindingFailed,
        BusOff,
        DeadlineMissed,
        ErrorActive,
        ErrorPassive,
        EventMissing,
        EventsLost,
        Expired,
        HardResumed,
        HardStopped,
        MaybeSent,
        NodeIdLost,
        NotConfirmed,
        NotSent,
        WrongCatalog,
    )
    from genus.can._pictures import draw_plan
    from genus.can._plan.admission import plan
    from genus.can._plan.dbc_export import format_dbc
    from genus.can._plan.system import BusSpec, ChannelSpec, ForeignFrame, System, format_bitrate, format_bound
    from genus.can._plan.system_file import format_system, load_system, parse_system
    from genus.can._sim.faults import fault_help, parse_fault
    from genus.can._wire.frame import Frame, Identifier, Priority, Timing
    from genus.can._wire.payload import PayloadCodec
    from genus.can._wire.segments import split_payload
    from genus.can._world.scenario import PreparedSystem, Scenario, simulate
    from genus.can._world.world import World

__all__ = [
    "BindingFailed",
    "BusOff",
    "BusSpec",
    "ChannelSpec",
    "ColumnDecoder",
    "DeadlineMissed",
    "DecodedFrames",
    "Decoding",
    "ErrorActive",
    "ErrorPassive",
    "EventMissing",
    "EventsLost",
    "Expired",
    "ForeignFrame",
    "Frame",
    "HardResumed",
    "HardStopped",
    "Identifier",
    "J1939Broadcast",
    "J1939Id",
    "J1939Name",
    "J1939Receiver",
    "J1939Transfer",
    "LongColumns",
    "LongMessages",
    "MaybeSent",
    "NodeIdLost",
    "NotConfirmed",
    "NotSent",
    "PayloadCodec",
    "PreparedSystem",
    "Priority",
    "Scenario",
    "System",
    "Timing",
    "World",
    "WrongCatalog",
    "address_types",
    "decode_log",
    "draw_plan",
    "fault_help",
    "format_bitrate",
    "format_bound",
    "format_dbc",
    "format_system",
    "load_dbc",
    "load_system",
    "open_broker",
    "open_monitor",
    "parse_candump",
    "parse_fault",
    "parse_system",
    "plan",
    "python_source",
    "read_log",
    "simulate",
    "split_payload",
]

if not TYPE_CHECKING:
    __getattr__ = lazy(__name__)
