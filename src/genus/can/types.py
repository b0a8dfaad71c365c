"""What calls of `genus.can` return, and options that programs name in annotations only."""

from typing import TYPE_CHECKING

from genus._lazy import lazy

if TYPE_CHECKING:
    from genus.can._dbc import Dbc, MessageLayout, SignalLayout
    from genus.can._dbc.columns import PartFrames, RefusedFrames
    from genus.can._j1939 import ClaimedNames, Incomplete, LongMessage
    from genus.can._j1939_transfer import J1939Frame
    from genus.can._live.services import LiveBroker, LiveMonitor, MonitorSnapshot
    from genus.can._logs import CanLog, FrameColumns, LoggedFrame
    from genus.can._logs.frames import DamagedLine, LogBlock
    from genus.can._monitor import ChannelStatistics, MonitoredFrame
    from genus.can._node.problems import DeliveryProblem
    from genus.can._plan.admission import MAX_ADVISED, Advice, BusLoad, LoadShare, Plan, Verdict
    from genus.can._plan.calendar import Calendar, Occurrence, Slot
    from genus.can._plan.foreign import Collision
    from genus.can._plan.system import ErrorPassivePolicy, QosName
    from genus.can._protocol.broker_tables import AnnouncedChannel
    from genus.can._protocol.messages import QosClass
    from genus.can._protocol.notices import ChannelConflict, EtagsRefused, NodeIdConflict, RoleChanged, StoreFailed
    from genus.can._sim.trace import Passage, Trace, TrafficClass
    from genus.can._wire.frame import ProtocolEtag
    from genus.can._world.outcome import (
        BandResult,
        ChannelResult,
        NodeCondition,
        NodeRole,
        NodeState,
        NodeSubscription,
        Outcome,
        Summary,
    )
    from genus.can._world.programs import NodeDown
    from genus.can._world.scenario import ScenarioRun
    from genus.can._world.synthetic import Pattern
    from genus.can._world.tracker import EventRecord
    from genus.can._world.world import Clocks, Program

__all__ = [
    "MAX_ADVISED",
    "Advice",
    "AnnouncedChannel",
    "BandResult",
    "BusLoad",
    "Calendar",
    "CanLog",
    "ChannelConflict",
    "ChannelResult",
    "ChannelStatistics",
    "ClaimedNames",
    "Clocks",
    "Collision",
    "DamagedLine",
    "Dbc",
    "DeliveryProblem",
    "ErrorPassivePolicy",
    "EtagsRefused",
    "EventRecord",
    "FrameColumns",
    "Incomplete",
    "J1939Frame",
    "LiveBroker",
    "LiveMonitor",
    "LoadShare",
    "LogBlock",
    "LoggedFrame",
    "LongMessage",
    "MessageLayout",
    "MonitorSnapshot",
    "MonitoredFrame",
    "NodeCondition",
    "NodeDown",
    "NodeIdConflict",
    "NodeRole",
    "NodeState",
    "NodeSubscription",
    "Occurrence",
    "Outcome",
    "PartFrames",
    "Passage",
    "Pattern",
    "Plan",
    "Program",
    "ProtocolEtag",
    "QosClass",
    "QosName",
    "RefusedFrames",
    "RoleChanged",
    "ScenarioRun",
    "SignalLayout",
    "Slot",
    "StoreFailed",
    "Summary",
    "Trace",
    "TrafficClass",
    "Verdict",
]

if not TYPE_CHECKING:
    __getattr__ = lazy(__name__)
