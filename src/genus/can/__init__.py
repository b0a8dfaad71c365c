"""Event channels on CAN: plan a bus, simulate it under faults, run nodes on it, and read its logs and databases."""

from typing import TYPE_CHECKING

from genus._lazy import lazy

if TYPE_CHECKING:
    from genus.can._dbc import Dbc, Decoding, MessageLayout, SignalLayout, decode_log, load_dbc, python_source
    from genus.can._dbc.columns import ColumnDecoder, DecodedFrames, PartFrames, RefusedFrames
    from genus.can._dbc.long_columns import LongColumns
    from genus.can._dbc.long_messages import LongMessages
    from genus.can._j1939.fast_packet import FastPackets
    from genus.can._j1939.identifier import J1939Id
    from genus.can._j1939.name import ClaimedNames, J1939Name
    from genus.can._j1939.reassembly import Incomplete, J1939Reassembler, LongMessage
    from genus.can._j1939.transfer import J1939Broadcast, J1939Frame, J1939Receiver, J1939Transfer
    from genus.can._live.services import (
        LiveBroker,
        LiveMonitor,
        MonitorSnapshot,
        address_types,
        open_broker,
        open_monitor,
    )
    from genus.can._logs import CanLog, FrameColumns, LoggedFrame, read_log
    from genus.can._logs.frames import DamagedLine, LogBlock
    from genus.can._logs.text_reader import parse_candump
    from genus.can._monitor import ChannelStatistics, Monitor, MonitoredFrame
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
    from genus.can._node.reports import Report
    from genus.can._plan import (
        BusSpec,
        ChannelSpec,
        ForeignFrame,
        System,
        format_dbc,
        format_system,
        load_system,
        parse_system,
        plan,
    )
    from genus.can._plan.picture import draw_plan
    from genus.can._plan.units import format_bitrate, format_bound
    from genus.can._sim.fault_text import fault_help, parse_fault
    from genus.can._wire.frame import Frame, Identifier, Priority, ProtocolEtag, subject_uid
    from genus.can._wire.length import (
        FdBits,
        Timing,
        exact_bits,
        exact_fd_bits,
        padded_size,
        worst_case_bits,
        worst_case_fd_bits,
    )
    from genus.can._wire.payload import PayloadCodec
    from genus.can._wire.segments import Reassembler, split_payload
    from genus.can._world.scenario import PreparedSystem, Scenario, simulate
    from genus.can._world.world import World

__all__ = [
    "BindingFailed",
    "BusOff",
    "BusSpec",
    "CanLog",
    "ChannelSpec",
    "ChannelStatistics",
    "ClaimedNames",
    "ColumnDecoder",
    "DamagedLine",
    "Dbc",
    "DeadlineMissed",
    "DecodedFrames",
    "Decoding",
    "ErrorActive",
    "ErrorPassive",
    "EventMissing",
    "EventsLost",
    "Expired",
    "FastPackets",
    "FdBits",
    "ForeignFrame",
    "Frame",
    "FrameColumns",
    "HardResumed",
    "HardStopped",
    "Identifier",
    "Incomplete",
    "J1939Broadcast",
    "J1939Frame",
    "J1939Id",
    "J1939Name",
    "J1939Reassembler",
    "J1939Receiver",
    "J1939Transfer",
    "LiveBroker",
    "LiveMonitor",
    "LogBlock",
    "LoggedFrame",
    "LongColumns",
    "LongMessage",
    "LongMessages",
    "MaybeSent",
    "MessageLayout",
    "Monitor",
    "MonitorSnapshot",
    "MonitoredFrame",
    "NodeIdLost",
    "NotConfirmed",
    "NotSent",
    "PartFrames",
    "PayloadCodec",
    "PreparedSystem",
    "Priority",
    "ProtocolEtag",
    "Reassembler",
    "RefusedFrames",
    "Report",
    "Scenario",
    "SignalLayout",
    "System",
    "Timing",
    "World",
    "WrongCatalog",
    "address_types",
    "decode_log",
    "draw_plan",
    "exact_bits",
    "exact_fd_bits",
    "fault_help",
    "format_bitrate",
    "format_bound",
    "format_dbc",
    "format_system",
    "load_dbc",
    "load_system",
    "open_broker",
    "open_monitor",
    "padded_size",
    "parse_candump",
    "parse_fault",
    "parse_system",
    "plan",
    "python_source",
    "read_log",
    "simulate",
    "split_payload",
    "subject_uid",
    "worst_case_bits",
    "worst_case_fd_bits",
]

if not TYPE_CHECKING:
    __getattr__ = lazy(
        __name__,
        _dbc="Dbc Decoding MessageLayout SignalLayout decode_log load_dbc python_source",
        _dbc__columns="ColumnDecoder DecodedFrames PartFrames RefusedFrames",
        _dbc__long_columns="LongColumns",
        _dbc__long_messages="LongMessages",
        _j1939__fast_packet="FastPackets",
        _j1939__identifier="J1939Id",
        _j1939__name="ClaimedNames J1939Name",
        _j1939__reassembly="Incomplete J1939Reassembler LongMessage",
        _j1939__transfer="J1939Broadcast J1939Frame J1939Receiver J1939Transfer",
        _live__services="LiveBroker LiveMonitor MonitorSnapshot address_types open_broker open_monitor",
        _logs="CanLog FrameColumns LoggedFrame read_log",
        _logs__frames="DamagedLine LogBlock",
        _logs__text_reader="parse_candump",
        _monitor="ChannelStatistics Monitor MonitoredFrame",
        _node__problems=(
            "BindingFailed BusOff DeadlineMissed ErrorActive ErrorPassive EventMissing EventsLost Expired "
            "HardResumed HardStopped MaybeSent NodeIdLost NotConfirmed NotSent WrongCatalog"
        ),
        _node__reports="Report",
        _plan="BusSpec ChannelSpec ForeignFrame System format_dbc format_system load_system parse_system plan",
        _plan__picture="draw_plan",
        _plan__units="format_bitrate format_bound",
        _sim__fault_text="fault_help parse_fault",
        _wire__frame="Frame Identifier Priority ProtocolEtag subject_uid",
        _wire__length="FdBits Timing exact_bits exact_fd_bits padded_size worst_case_bits worst_case_fd_bits",
        _wire__payload="PayloadCodec",
        _wire__segments="Reassembler split_payload",
        _world__scenario="PreparedSystem Scenario simulate",
        _world__world="World",
    )
