"""Event channels on CAN: plan a bus, simulate it under faults, run nodes on it, and read its logs and databases."""

from typing import TYPE_CHECKING

from genus._lazy import lazy

if TYPE_CHECKING:
    from genus.can._dbc import (
        CanLog,
        Dbc,
        Decoding,
        LoggedFrame,
        MessageLayout,
        SignalLayout,
        decode_log,
        load_dbc,
        python_source,
        read_log,
    )
    from genus.can._dbc.candump import CandumpBlock, DamagedLine, parse_candump
    from genus.can._dbc.columns import ColumnDecoder, DecodedFrames, FrameColumns, RefusedFrames
    from genus.can._monitor import Monitor
    from genus.can._node.reports import Report
    from genus.can._node.troubles import (
        DeadlineMissed,
        EventMissing,
        EventsLost,
        Expired,
        HardResumed,
        HardStopped,
        NotBound,
        NotSent,
        NumberLost,
        OffTheBus,
        Trouble,
    )
    from genus.can._plan import (
        Advice,
        BusLoad,
        BusSpec,
        Calendar,
        ChannelSpec,
        LoadShare,
        Occurrence,
        Plan,
        Slot,
        System,
        Verdict,
        format_system,
        load_system,
        parse_system,
        plan,
    )
    from genus.can._plan.admission import MAX_ADVISED
    from genus.can._plan.picture import CALENDAR_LEGEND, calendar_lines, draw_plan
    from genus.can._plan.units import format_bitrate, format_span
    from genus.can._protocol.broker import Broker
    from genus.can._sim.fault_text import fault_help, parse_fault
    from genus.can._sim.trace import Band, Passage, Trace
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
    from genus.can._world import PATTERNS, ChannelResult, Outcome, Pattern, simulate

__all__ = [
    "CALENDAR_LEGEND",
    "MAX_ADVISED",
    "PATTERNS",
    "Advice",
    "Band",
    "Broker",
    "BusLoad",
    "BusSpec",
    "Calendar",
    "CanLog",
    "CandumpBlock",
    "ChannelResult",
    "ChannelSpec",
    "ColumnDecoder",
    "DamagedLine",
    "Dbc",
    "DeadlineMissed",
    "DecodedFrames",
    "Decoding",
    "EventMissing",
    "EventsLost",
    "Expired",
    "FdBits",
    "Frame",
    "FrameColumns",
    "HardResumed",
    "HardStopped",
    "Identifier",
    "LoadShare",
    "LoggedFrame",
    "MessageLayout",
    "Monitor",
    "NotBound",
    "NotSent",
    "NumberLost",
    "Occurrence",
    "OffTheBus",
    "Outcome",
    "Passage",
    "Pattern",
    "PayloadCodec",
    "Plan",
    "Priority",
    "ProtocolEtag",
    "Reassembler",
    "RefusedFrames",
    "Report",
    "SignalLayout",
    "Slot",
    "System",
    "Timing",
    "Trace",
    "Trouble",
    "Verdict",
    "calendar_lines",
    "decode_log",
    "draw_plan",
    "exact_bits",
    "exact_fd_bits",
    "fault_help",
    "format_bitrate",
    "format_span",
    "format_system",
    "load_dbc",
    "load_system",
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
        _dbc="CanLog Dbc Decoding LoggedFrame MessageLayout SignalLayout decode_log load_dbc python_source read_log",
        _dbc__candump="CandumpBlock DamagedLine parse_candump",
        _dbc__columns="ColumnDecoder DecodedFrames FrameColumns RefusedFrames",
        _monitor="Monitor",
        _node__reports="Report",
        _node__troubles=(
            "DeadlineMissed EventMissing EventsLost Expired HardResumed HardStopped NotBound NotSent NumberLost "
            "OffTheBus Trouble"
        ),
        _plan=(
            "Advice BusLoad BusSpec Calendar ChannelSpec LoadShare Occurrence Plan Slot System Verdict "
            "format_system load_system parse_system plan"
        ),
        _plan__admission="MAX_ADVISED",
        _plan__picture="CALENDAR_LEGEND calendar_lines draw_plan",
        _plan__units="format_bitrate format_span",
        _protocol__broker="Broker",
        _sim__fault_text="fault_help parse_fault",
        _sim__trace="Band Passage Trace",
        _wire__frame="Frame Identifier Priority ProtocolEtag subject_uid",
        _wire__length="FdBits Timing exact_bits exact_fd_bits padded_size worst_case_bits worst_case_fd_bits",
        _wire__payload="PayloadCodec",
        _wire__segments="Reassembler split_payload",
        _world="ChannelResult Outcome PATTERNS Pattern simulate",
    )
