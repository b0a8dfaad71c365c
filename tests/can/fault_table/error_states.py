"""Row 23: senders that are error passive, or become so."""

import msgspec

from genus.can import ErrorActive, ErrorPassive, EventMissing, NotSent, PreparedSystem
from genus.can._plan.calendar import Slot
from genus.can._plan.system import ERROR_PASSIVE_POLICIES, ErrorPassivePolicy
from genus.can._world.station import Station
from genus.can.types import ScenarioRun
from tests.can.fault_table.row import Observation, Setting, row
from tests.can.fault_table.stations import with_soft_load

SOFT_LOAD = 0.6
BETWEEN_SLOTS, EVERY = "1100us", "100ms"
"""A station does not become error passive within a slot without failing there; the cycle is 10 ms."""


class Misses:
    """State: which nodes were told that nothing is promised, and the events that were not sent, or missing."""

    def __init__(self, prepared: PreparedSystem) -> None:
        self.told = self.untold = self.alarms = self.late = 0
        """Events not sent in slots that their publisher was told of, in others, alarms of such others, late events."""
        self._slots = prepared.plan.calendar.slots
        self._spans: dict[str, list[list[int]]] = {}

    def add(self, station: Station, trouble: object, now: int) -> None:
        """A program got a trouble."""
        spans = self._spans.setdefault(station.name, [])
        if isinstance(trouble, ErrorPassive) and not trouble.promised:
            spans += [[now, 1 << 62]] if not spans or spans[-1][1] < 1 << 62 else []
        elif isinstance(trouble, ErrorActive) and spans:
            spans[-1][1] = min(spans[-1][1], now)
        elif isinstance(trouble, NotSent):
            slot = next(slot for slot in self._slots if slot.event == trouble.channel and slot.node == station.name)
            is_told = self._was_told(station.name, slot.next_start(now - slot.period_ns + 1).start_ns)
            self.told, self.untold = self.told + is_told, self.untold + (not is_told)
        elif isinstance(trouble, EventMissing):
            slot = next(slot for slot in self._slots if _is_due(slot, trouble))
            self.alarms += not self._was_told(slot.node, trouble.deadline_ns - slot.length_ns)

    def _was_told(self, node: str, instant: int) -> bool:
        return any(begin < instant <= end for begin, end in self._spans.get(node, ()))


def _is_due(slot: Slot, missing: EventMissing) -> bool:
    return slot.event == missing.channel and (missing.deadline_ns - slot.deadline_ns) % slot.period_ns == 0


@row(
    23,
    "error passive senders",
    injected="every 100 ms, between slots, all stations become error passive; hard frames fail once with p = 0.2",
    expected="stop: 0 misses that were not told before the slot, none late; plan: 0 misses",
    example='--clocks perfect --faults "counters nodes=1-12 tec=135 every=100ms" --faults "exactly count=1 p=0.2"',
)
def error_passive_senders(setting: Setting) -> Observation:
    """Compare nodes that promise nothing meanwhile, and slots that are planned for it."""
    seconds = setting.size(0.3, 2)
    prepared = [_with_policy(setting, policy) for policy in ERROR_PASSIVE_POLICIES]
    (stop, offered), (plan, sent) = (_run(setting, each, seconds) for each in prepared)
    short, long = (max(slot.length_ns for slot in each.plan.calendar.slots) // 1000 for each in prepared)
    text = (
        f"stop: {stop.untold} misses and {stop.alarms} alarms not told before, {stop.told:,} of {offered:,} told and "
        f"not sent, {stop.late} late; plan: {plan.untold + plan.told} misses of {sent:,} events, {plan.late} late, "
        f"in slots of {long} instead of {short} µs"
    )
    expected = {"told before": not stop.untold + stop.alarms, "some told": stop.told > 0}
    missed = plan.untold + plan.alarms + plan.told
    return Observation(text, expected | {"0 misses with plan": not missed, "none late": not stop.late + plan.late})


def _with_policy(setting: Setting, policy: ErrorPassivePolicy) -> PreparedSystem:
    bus = msgspec.structs.replace(setting.system.bus, error_passive=policy)
    return PreparedSystem.of(with_soft_load(setting.system.on_bus(bus), SOFT_LOAD))


def _run(setting: Setting, prepared: PreparedSystem, seconds: float) -> tuple[Misses, int]:
    """The misses of a run, and how many hard events were published."""
    nodes = ",".join(str(number) for number in setting.system.nodes.values())
    faults = f"counters nodes={nodes} tec=135 at={BETWEEN_SLOTS} every={EVERY}", "exactly count=1 p=0.2"
    misses = Misses(prepared)
    scenario = setting.scenario(*faults, prepared=prepared, duration=seconds, clocks="perfect", exact_lengths=False)
    with ScenarioRun(scenario) as run:
        world = run.world
        world.observation.on_problem.append(lambda station, trouble: misses.add(station, trouble, world.now_ns))
        for _ in run.advance():
            pass
        outcome = run.outcome()
    hard = outcome.of_class("hard")
    misses.late = sum(each.late + each.missed for each in hard)
    return misses, sum(each.published for each in hard)
