"""Event channels on CAN: plan a bus, simulate it under faults, run nodes on it, and read its logs and databases."""

from typing import TYPE_CHECKING

from genus._lazy import lazy

if TYPE_CHECKING:
    from genus.can._dbc import (
        CanLog,
        Dbc,
        Decoding,
        Logged,
        MessageLayout,
        SignalLayout,
        decode_log,
        load_dbc,
        python_source,
        read_log,
    )
    from genus.can._live.services import LiveBroker, LiveMonitor, MonitorSnapshot, open_broker, open_monitor
    from genus.can._monitor import ChannelStatistics, Monitor
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
        Bus,
        Calendar,
        Channel,
        Load,
        Plan,
        Share,
        Slot,
        System,
        Verdict,
        load_system,
        parse_system,
        plan,
        spell_system,
    )
    from genus.can._plan.system import QosClass, format_bitrate, format_span
    from genus.can._protocol.broker import Broker
    from genus.can._protocol.notices import Standing
    from genus.can._sim.fault_text import fault_help, parse_fault
    from genus.can._sim.trace import Band, Passage, Trace
    from genus.can._wire.frame import Frame, Identifier, Priority, ProtocolTag, subject_uid
    from genus.can._wire.length import Timing, exact_bits, worst_case_bits
    from genus.can._wire.payload import Layout
    from genus.can._wire.segments import Reassembler, split
    from genus.can._world.outcome import BandResult, ChannelResult, Outcome, Summary
    from genus.can._world.programs import NodeDown
    from genus.can._world.releases import PATTERNS, Pattern
    from genus.can._world.scenario import PreparedSystem, Scenario, ScenarioRun, simulate
    from genus.can._world.tracker import EventRecord
    from genus.can._world.world import Clocks, Program, World

__all__ = [
    "PATTERNS",
    "Advice",
    "Band",
    "BandResult",
    "Broker",
    "Bus",
    "Calendar",
    "CanLog",
    "Channel",
    "ChannelResult",
    "ChannelStatistics",
    "Clocks",
    "Dbc",
    "DeadlineMissed",
    "Decoding",
    "EventMissing",
    "EventRecord",
    "EventsLost",
    "Expired",
    "Frame",
    "HardResumed",
    "HardStopped",
    "Identifier",
    "Layout",
    "LiveBroker",
    "LiveMonitor",
    "Load",
    "Logged",
    "MessageLayout",
    "Monitor",
    "MonitorSnapshot",
    "NodeDown",
    "NotBound",
    "NotSent",
    "NumberLost",
    "OffTheBus",
    "Outcome",
    "Passage",
    "Pattern",
    "Plan",
    "PreparedSystem",
    "Priority",
    "Program",
    "ProtocolTag",
    "QosClass",
    "Reassembler",
    "Scenario",
    "ScenarioRun",
    "Share",
    "SignalLayout",
    "Slot",
    "Standing",
    "Summary",
    "System",
    "Timing",
    "Trace",
    "Trouble",
    "Verdict",
    "World",
    "decode_log",
    "exact_bits",
    "fault_help",
    "format_bitrate",
    "format_span",
    "load_dbc",
    "load_system",
    "open_broker",
    "open_monitor",
    "parse_fault",
    "parse_system",
    "plan",
    "python_source",
    "read_log",
    "simulate",
    "spell_system",
    "split",
    "subject_uid",
    "worst_case_bits",
]

if not TYPE_CHECKING:
    __getattr__ = lazy(
        __name__,
        _dbc="CanLog Dbc Decoding Logged MessageLayout SignalLayout decode_log load_dbc python_source read_log",
        _live__services="LiveBroker LiveMonitor MonitorSnapshot open_broker open_monitor",
        _monitor="ChannelStatistics Monitor",
        _protocol__notices="Standing",
        _node__troubles=(
            "DeadlineMissed EventMissing EventsLost Expired HardResumed HardStopped NotBound NotSent NumberLost "
            "OffTheBus Trouble"
        ),
        _plan=(
            "Advice Bus Calendar Channel Load Plan Share Slot System Verdict load_system parse_system plan spell_system"
        ),
        _plan__system="QosClass format_bitrate format_span",
        _protocol__broker="Broker",
        _sim__fault_text="fault_help parse_fault",
        _sim__trace="Band Passage Trace",
        _wire__frame="Frame Identifier Priority ProtocolTag subject_uid",
        _wire__length="Timing exact_bits worst_case_bits",
        _wire__payload="Layout",
        _wire__segments="Reassembler split",
        _world__outcome="BandResult ChannelResult Outcome Summary",
        _world__programs="NodeDown",
        _world__releases="PATTERNS Pattern",
        _world__scenario="PreparedSystem Scenario ScenarioRun simulate",
        _world__tracker="EventRecord",
        _world__world="Clocks Program World",
    )
