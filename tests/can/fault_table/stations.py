"""Rows 6, 7 and 14: a broken transmitter, a babbling idiot, and more soft events than the bus can carry."""

from genus.can import PreparedSystem
from genus.can._plan.system import System
from genus.can._sim.errors import FrameOutcome
from genus.can._sim.trace import Passage
from genus.can.types import ScenarioRun
from tests.can.fault_table.row import Observation, Setting, count_alarms, row

BROKEN = "tram"
BABBLING = "monitor"
OFF_AFTER = 32
LOADS = (0.7, 0.8, 0.9, 1.0, 1.2)
SECOND = 1_000_000_000


@row(
    6,
    "bus-off",
    injected="from 1 s to 1.2 s everything that one station sends is corrupted",
    expected="off after 32 failures and 5984 bits at most; back after 1408 bits at least; no misses of other stations",
    example='--faults "transmitter node=11 from=1s until=1200ms"',
)
def bus_off(setting: Setting) -> Observation:
    """A station with a broken transmitter goes off the bus, and recovers."""
    number = setting.number(BROKEN)
    fault = f"transmitter node={number} from=1s until=1200ms"
    with ScenarioRun(setting.scenario(fault, duration=1.5, traced=True)) as run:
        for _ in run.advance():
            pass
        outcome = run.outcome()
        own = [each for each in run.world.trace if number in each.senders and each.start_ns >= SECOND]
    failures = _first_failures(own)
    bit = setting.system.bus.timing.bit_ns
    took = (failures[-1].end_ns - failures[0].start_ns) // bit
    later = next(each for each in own if each.start_ns >= failures[-1].end_ns)
    away = (later.start_ns - failures[-1].end_ns) // bit
    others = [each for each in outcome.channels if each.node != BROKEN]
    missed = count_alarms(outcome.of_class("hard")) + sum(each.missed + each.expired for each in others)
    again = any(each.outcome is FrameOutcome.SENT for each in own)
    text = (
        f"off after {len(failures)} failures in {took} bits, back after {away} bits; "
        f"{missed} misses of other stations; {'sends again' if again else 'never sends again'} when repaired"
    )
    expected = {"32 failures": len(failures) == OFF_AFTER, "5984 bits": took <= 5984, "1408 bits": away >= 1408}
    return Observation(text, expected | {"no misses": missed == 0, "sends again": again})


def _first_failures(own: list[Passage]) -> list[Passage]:
    """The failures until the station goes off the bus for the first time: before a pause of 128 times 11 bits."""
    failures: list[Passage] = []
    for passage in own:
        if failures and passage.start_ns - failures[-1].end_ns > 1_000_000:
            break
        failures.append(passage)
    return failures


@row(
    7,
    "babbling idiot",
    injected="from 0.5 s on one station sends frames of 8 bytes without a pause: priority 0, then 1, then 254",
    expected="without guardians priority 0 blocks the bus; with them no hard event of other stations is missed",
    example='--clocks perfect --guards --faults "babble node=2 priority=0 from=500ms"',
)
def babbling_idiot(setting: Setting) -> Observation:
    """Compare stations with and without guardians."""
    lines, blocked, kept = [], True, True
    for priority in (0, 1, 254):
        shown = []
        for guards in (False, True):
            outcome = setting.simulate(
                f"babble node={setting.number(BABBLING)} priority={priority} from=500ms", duration=setting.size(0.7, 5),
                clocks="perfect", guards=guards,
            )  # fmt: skip
            hard = count_alarms(outcome.of_class("hard"))
            soft = sum(each.missed for each in outcome.of_class("soft") if each.node != BABBLING)
            shown.append(f"{hard}/{soft}")
            if guards or priority:
                kept &= hard == 0
            else:
                blocked &= hard > 0
        lines.append(f"priority {priority}: {shown[0]}, guarded {shown[1]}")
    return Observation(
        f"hard alarms/soft misses at {'; '.join(lines)}", {"priority 0 blocks": blocked, "no misses": kept}
    )


@row(
    14,
    "overload",
    injected="soft events take 0.7, 0.8, 0.9, 1.0, 1.2 of the bus; frames of maximum length",
    expected="0 hard misses; no expired event is sent; soft misses are reported and grow with the load",
)
def overload(setting: Setting) -> Observation:
    """Hard events are not affected; soft ones miss their deadlines or expire, and are reported."""
    hard, unsent, missed = 0, 0, []
    for load in LOADS if setting.full else LOADS[::4]:
        prepared = PreparedSystem.of(with_soft_load(setting.system, load))
        outcome = setting.simulate(
            prepared=prepared, duration=setting.size(0.5, 10), clocks="perfect", exact_lengths=False
        )
        soft = outcome.of_class("soft")
        hard += count_alarms(outcome.of_class("hard"))
        unsent += sum(each.sent_expired for each in soft)
        missed.append(100 * sum(each.missed for each in soft) / sum(each.published for each in soft))
    text = f"{hard} hard misses, {unsent} expired events sent; soft misses {' '.join(f'{m:.2f}' for m in missed)} %"
    grows = missed == sorted(missed) and missed[0] < 1 and missed[-1] > 5
    return Observation(text, {"0 hard misses": hard == 0, "none expired": unsent == 0, "misses grow": grows})


def with_soft_load(system: System, load: float) -> System:
    """The system with soft events so often that they take this share of the bus; deadlines are 0.6 of the periods."""
    taken = sum(channel.event_ns / channel.period_ns for channel in system.soft)
    for channel in system.soft:
        period = round(channel.period_ns * taken / load)
        deadline = round(0.6 * period)
        system = system.with_channel(
            channel.name, period_ns=period, deadline_ns=deadline, expires_ns=2 * deadline, jitter_ns=0
        )
    return system
