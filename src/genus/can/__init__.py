"""Event channels on CAN: plan a bus, simulate it under faults, run nodes on it, and read its logs and databases."""

from typing import TYPE_CHECKING

from genus._lazy import lazy

if TYPE_CHECKING:
    from genus.can._dbc import (
        Dbc,
        Decoding,
        MessageLayout,
        SignalLayout,
        decode_log,
        load_dbc,
        python_source,
    )
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
        DeliveryProblem,
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
        Advice,
        BusLoad,
        BusSpec,
        Calendar,
        ChannelSpec,
        Collision,
        ForeignFrame,
        LoadShare,
        Occurrence,
        Plan,
        Slot,
        System,
        Verdict,
        format_dbc,
        format_system,
        load_system,
        parse_system,
        plan,
    )
    from genus.can._plan.admission import MAX_ADVISED
    from genus.can._plan.picture import CALENDAR_LEGEND, calendar_lines, draw_plan
    from genus.can._plan.system import ErrorPassivePolicy, QosName
    from genus.can._plan.units import format_bitrate, format_bound
    from genus.can._protocol.broker import Broker
    from genus.can._protocol.broker_tables import AnnouncedChannel, BrokerTables, FileStore, MemoryStore, TableStore
    from genus.can._protocol.clock_model import (
        UNBOUNDED_PRECISION,
        ClockAssumptions,
        ClockEstimate,
        ClockLine,
        ClockSample,
        estimate_clock,
    )
    from genus.can._protocol.messages import Claim, GetEtag, QosClass, Supply, parse_message
    from genus.can._protocol.notices import ChannelConflict, EtagsRefused, NodeIdConflict, RoleChanged, StoreFailed
    from genus.can._protocol.time_service import (
        ClockStepped,
        MasterChanged,
        Synchronised,
        SyncLost,
        TimeService,
        follow_up_frame,
        sync_frame,
    )
    from genus.can._sim.fault_text import fault_help, parse_fault
    from genus.can._sim.trace import Passage, Trace, TrafficClass
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
    from genus.can._world.nodes import NodeCondition, NodeRole, NodeState, NodeSubscription
    from genus.can._world.outcome import BandResult, ChannelResult, Outcome, Summary
    from genus.can._world.programs import NodeDown
    from genus.can._world.scenario import PreparedSystem, Scenario, ScenarioRun, simulate
    from genus.can._world.synthetic import PATTERNS, Pattern
    from genus.can._world.tracker import EventRecord
    from genus.can._world.world import Clocks, Program, World

__all__ = [
    "CALENDAR_LEGEND",
    "MAX_ADVISED",
    "PATTERNS",
    "UNBOUNDED_PRECISION",
    "Advice",
    "AnnouncedChannel",
    "BandResult",
    "BindingFailed",
    "Broker",
    "BrokerTables",
    "BusLoad",
    "BusOff",
    "BusSpec",
    "Calendar",
    "CanLog",
    "ChannelConflict",
    "ChannelResult",
    "ChannelSpec",
    "ChannelStatistics",
    "Claim",
    "ClaimedNames",
    "ClockAssumptions",
    "ClockEstimate",
    "ClockLine",
    "ClockSample",
    "ClockStepped",
    "Clocks",
    "Collision",
    "ColumnDecoder",
    "DamagedLine",
    "Dbc",
    "DeadlineMissed",
    "DecodedFrames",
    "Decoding",
    "DeliveryProblem",
    "ErrorActive",
    "ErrorPassive",
    "ErrorPassivePolicy",
    "EtagsRefused",
    "EventMissing",
    "EventRecord",
    "EventsLost",
    "Expired",
    "FastPackets",
    "FdBits",
    "FileStore",
    "ForeignFrame",
    "Frame",
    "FrameColumns",
    "GetEtag",
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
    "LoadShare",
    "LogBlock",
    "LoggedFrame",
    "LongColumns",
    "LongMessage",
    "LongMessages",
    "MasterChanged",
    "MaybeSent",
    "MemoryStore",
    "MessageLayout",
    "Monitor",
    "MonitorSnapshot",
    "MonitoredFrame",
    "NodeCondition",
    "NodeDown",
    "NodeIdConflict",
    "NodeIdLost",
    "NodeRole",
    "NodeState",
    "NodeSubscription",
    "NotConfirmed",
    "NotSent",
    "Occurrence",
    "Outcome",
    "PartFrames",
    "Passage",
    "Pattern",
    "PayloadCodec",
    "Plan",
    "PreparedSystem",
    "Priority",
    "Program",
    "ProtocolEtag",
    "QosClass",
    "QosName",
    "Reassembler",
    "RefusedFrames",
    "Report",
    "RoleChanged",
    "Scenario",
    "ScenarioRun",
    "SignalLayout",
    "Slot",
    "StoreFailed",
    "Summary",
    "Supply",
    "SyncLost",
    "Synchronised",
    "System",
    "TableStore",
    "TimeService",
    "Timing",
    "Trace",
    "TrafficClass",
    "Verdict",
    "World",
    "WrongCatalog",
    "address_types",
    "calendar_lines",
    "decode_log",
    "draw_plan",
    "estimate_clock",
    "exact_bits",
    "exact_fd_bits",
    "fault_help",
    "follow_up_frame",
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
    "parse_message",
    "parse_system",
    "plan",
    "python_source",
    "read_log",
    "simulate",
    "split_payload",
    "subject_uid",
    "sync_frame",
    "worst_case_bits",
    "worst_case_fd_bits",
]

if not TYPE_CHECKING:
    __getattr__ = lazy(__name__)
