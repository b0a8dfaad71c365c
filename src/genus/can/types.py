"""What calls of `genus.can` return, and options that programs name in annotations only."""

from typing import TYPE_CHECKING

from genus._lazy import lazy

if TYPE_CHECKING:
    from genus.can._node.problems import DeliveryProblem
    from genus.can._plan import Advice, BusLoad, Calendar, Collision, LoadShare, Occurrence, Plan, Slot, Verdict
    from genus.can._plan.admission import MAX_ADVISED
    from genus.can._plan.system import ErrorPassivePolicy, QosName
    from genus.can._protocol.broker_tables import AnnouncedChannel
    from genus.can._protocol.messages import QosClass
    from genus.can._protocol.notices import ChannelConflict, EtagsRefused, NodeIdConflict, RoleChanged, StoreFailed
    from genus.can._sim.trace import Passage, Trace, TrafficClass
    from genus.can._world.nodes import NodeCondition, NodeRole, NodeState, NodeSubscription
    from genus.can._world.outcome import BandResult, ChannelResult, Outcome, Summary
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
    "ChannelConflict",
    "ChannelResult",
    "Clocks",
    "Collision",
    "DeliveryProblem",
    "ErrorPassivePolicy",
    "EtagsRefused",
    "EventRecord",
    "LoadShare",
    "NodeCondition",
    "NodeDown",
    "NodeIdConflict",
    "NodeRole",
    "NodeState",
    "NodeSubscription",
    "Occurrence",
    "Outcome",
    "Passage",
    "Pattern",
    "Plan",
    "Program",
    "QosClass",
    "QosName",
    "RoleChanged",
    "ScenarioRun",
    "Slot",
    "StoreFailed",
    "Summary",
    "Trace",
    "TrafficClass",
    "Verdict",
]

if not TYPE_CHECKING:
    __getattr__ = lazy(
        "genus.can",
        _node__problems="DeliveryProblem",
        _plan="Advice BusLoad Calendar Collision LoadShare Occurrence Plan Slot Verdict",
        _plan__admission="MAX_ADVISED",
        _plan__system="ErrorPassivePolicy QosName",
        _protocol__broker_tables="AnnouncedChannel",
        _protocol__messages="QosClass",
        _protocol__notices="ChannelConflict EtagsRefused NodeIdConflict RoleChanged StoreFailed",
        _sim__trace="Passage Trace TrafficClass",
        _world__nodes="NodeCondition NodeRole NodeState NodeSubscription",
        _world__outcome="BandResult ChannelResult Outcome Summary",
        _world__programs="NodeDown",
        _world__scenario="ScenarioRun",
        _world__synthetic="Pattern",
        _world__tracker="EventRecord",
        _world__world="Clocks Program",
    )
