"""Rows 1 to 5, 11 to 13: faults of single frames."""

from math import sqrt
from typing import Any

import msgspec

from genus.can import PreparedSystem
from genus.can._plan.calendar import Calendar
from genus.can._world.outcome import Outcome
from tests.can.fault_table.row import Observation, Setting, count_alarms, count_misses, count_unreported, row
from tests.can.fault_table.transfers import deliver_transfers

PROBABILITIES = (0.01, 0.05, 0.1, 0.2)
EVENTS, HARD_EVERY_S = 36_000, 0.01 / 8
"""Hard events of a point of row 1, and how often there is one: eight channels every 10 ms."""
BURSTS = (100, 300, 600, 1000, 2000, 5000)
HARMLESS_BURST = 300
"""The length in bits of bursts after which no station goes off the bus, even after several."""
BURSTS_EVERY = "50013us"
"""Not a multiple of the cycle, so that bursts occur at all offsets within it."""


def _with_omissions(setting: Setting, omissions: int) -> PreparedSystem:
    system = setting.system
    for channel in system.hard:
        system = system.with_channel(channel.name, omissions=omissions)
    return PreparedSystem.of(system)


@row(
    1,
    "random frame error",
    injected="every attempt of every frame fails with p; p .01 .05 .1 .2 × omissions 0 to 3, 36,000 hard events each",
    expected="p^(o+1) of the events lost within 3 sigma; each reported once to each subscriber; none late",
    example='--clocks perfect --no-confinement --faults "errors p=0.1" --for 45s',
)
def random_errors(setting: Setting) -> Observation:
    """Compare lost events with the product of probabilities."""
    points = [(p, o) for p in PROBABILITIES for o in range(4) if p ** (o + 1) * EVENTS >= 1]
    points = points if setting.full else [(0.2, 0), (0.1, 1), (0.2, 1)]
    seconds = setting.size(1.2, EVENTS * HARD_EVERY_S)
    events = lost = unreported = late = 0
    deviations = [0.0]
    for p, omissions in points:
        outcome = setting.simulate(
            f"errors p={p}", prepared=_with_omissions(setting, omissions), duration=seconds, clocks="perfect",
            confinement=False,
        )  # fmt: skip
        hard = outcome.of_class("hard")
        published, failed = sum(each.published for each in hard), sum(each.not_sent for each in hard)
        deviations.append(_sigmas(published, failed, p ** (omissions + 1)))
        unreported, late = unreported + count_unreported(hard), late + sum(each.late + each.duplicates for each in hard)
        events, lost = events + published, lost + failed
    worst = max(deviations)
    text = (
        f"{len(points)} points, {events:,} events, {lost:,} lost; largest deviation {worst:.1f} sigma; "
        f"{unreported} not reported once to a subscriber, {late} late or twice"
    )
    return Observation(text, {"3 sigma": worst <= 3, "reported": not unreported, "none late": not late})


def _sigmas(events: int, lost: int, q: float) -> float:
    return abs(lost - events * q) / sqrt(events * q * (1 - q))


@row(
    2,
    "exactly o errors on every hard frame",
    injected="each hard frame fails as often as its slot allows; all frames of maximum length",
    expected="0 misses",
    example='--clocks perfect --no-confinement --worst-case --faults "exactly count=1"',
)
def as_many_errors_as_allowed(setting: Setting) -> Observation:
    """As many errors as a slot is planned for."""
    outcome = setting.simulate(
        "exactly count=1", duration=setting.size(1, 20), clocks="perfect", confinement=False, exact_lengths=False
    )
    hard = outcome.of_class("hard")
    missed = count_alarms(hard) + count_misses(hard)
    worst, bound = max(each.worst_ns for each in hard), min(each.bound_ns or 0 for each in hard)
    text = f"{missed} misses of {_published(outcome):,} events; slowest {worst / 1000:g} of {bound / 1000:g} µs"
    expected = {"0 misses": missed == 0, "bound": worst <= bound, "reported": not count_unreported(hard)}
    return Observation(text, expected)


@row(
    3,
    "exactly o + 1 errors on every hard frame",
    injected="each hard frame fails once more than its slot allows",
    expected="all reported to publisher and subscribers, none delivered",
    example='--clocks perfect --no-confinement --faults "exactly count=2"',
)
def one_error_too_many(setting: Setting) -> Observation:
    """No event is delivered, and publishers and subscribers are informed."""
    outcome = setting.simulate("exactly count=2", duration=setting.size(1, 20), clocks="perfect", confinement=False)
    hard = outcome.of_class("hard")
    events = _published(outcome)
    reported, delivered = sum(each.not_sent for each in hard), sum(sum(each.delivered.values()) for each in hard)
    text = (
        f"{reported:,} of {events:,} reported to their publishers, {count_alarms(hard):,} alarms, {delivered} delivered"
    )
    expected = {"all to publishers": reported == events, "none delivered": delivered == 0}
    return Observation(text, expected | {"each to subscribers": not count_unreported(hard)})


@row(
    4,
    "error in the frame that blocks a slot",
    injected="the frame on the wire when a slot starts fails in its last bit, then the hard frame once; longest frames",
    expected="0 misses; some misses if slots wait for the frame only, not for its error",
    example='--clocks perfect --no-confinement --worst-case --faults blocking --faults "exactly count=1"',
)
def blocking_errors(setting: Setting) -> Observation:
    """Compare slots that wait for the error of a blocking frame with slots that do not."""
    faults, seconds = ("blocking", "exactly count=1"), setting.size(2, 45)
    options: dict[str, Any] = {
        "duration": seconds, "clocks": "perfect", "confinement": False, "exact_lengths": False,
    }  # fmt: skip
    planned = setting.simulate(*faults, **options)
    without_error = setting.simulate(*faults, prepared=_without_error_time(setting.prepared), **options)
    blocked = sum(planned.bands[band].errors for band in ("soft", "system", "none"))
    missed, missed_without = (count_misses(run.of_class("hard")) for run in (planned, without_error))
    text = (
        f"{missed} misses of {_published(planned):,} events with {blocked:,} blocking errors; "
        f"{missed_without:,} with the shorter wait"
    )
    expected = {"0 misses": missed + count_unreported(planned.of_class("hard")) == 0}
    return Observation(text, expected | {"misses with the shorter wait": missed_without > 0})


def _without_error_time(prepared: PreparedSystem) -> PreparedSystem:
    """The same plan with slots that do not wait for the error of a blocking frame."""
    error_ns = prepared.typed.system.bus.error_ns
    slots = [
        msgspec.structs.replace(slot, wait_ns=slot.wait_ns - error_ns, length_ns=slot.length_ns - error_ns)
        for slot in prepared.plan.calendar.slots
    ]
    return PreparedSystem(prepared.typed, msgspec.structs.replace(prepared.plan, calendar=Calendar.of(slots)))


@row(
    5,
    "bursts of noise",
    injected="every 50 ms a burst of 100, 300, 600, 1000, 2000, 5000 bits, in which every attempt fails at once",
    expected="every lost hard event reported to each subscriber, none late; soft deadlines kept up to 300 bits",
    example='--clocks perfect --faults "bursts every=50013us bits=1000"',
)
def bursts(setting: Setting) -> Observation:
    """Hard events lost per burst, and soft deadlines missed."""
    seconds = setting.size(0.8, 20)
    lost, missed = [], {}
    unreported = late = 0
    for bits in BURSTS if setting.full else BURSTS[::2]:
        outcome = setting.simulate(f"bursts every={BURSTS_EVERY} bits={bits}", duration=seconds, clocks="perfect")
        hard, soft = outcome.of_class("hard"), outcome.of_class("soft")
        count = seconds * 1e6 / int(BURSTS_EVERY.removesuffix("us"))
        lost.append(sum(each.published - each.sent for each in hard) / count)
        missed[bits] = sum(each.missed for each in soft)
        unreported, late = unreported + count_unreported(hard), late + sum(each.late for each in hard)
    text = (
        f"hard events lost per burst {' '.join(f'{each:.2f}' for each in lost)}; soft deadlines missed "
        f"{' '.join(map(str, missed.values()))}; {unreported} losses not reported, {late} late"
    )
    kept = not any(count for bits, count in missed.items() if bits <= HARMLESS_BURST)
    return Observation(text, {"reported": not unreported, "none late": not late, "soft deadlines": kept})


@row(
    11,
    "duplicate frame",
    injected="an error in the last bit of 1 in 1000 frames, and of 1 in 10: receivers have it, it is sent again",
    expected="no program gets an event twice",
    example='--faults "duplicates p=0.001"',
)
def duplicates(setting: Setting) -> Observation:
    """Compare repeated frames with repeated events."""
    repeated = duplicated = missing = 0
    for p in (0.001, 0.1):
        outcome = setting.simulate(f"duplicates p={p}", duration=setting.size(1, 30), confinement=False)
        repeated += outcome.dropped.get("repeated", 0) + outcome.dropped.get("segments: duplicate", 0)
        duplicated += sum(each.duplicates for each in outcome.channels)
        missing += sum(max(0, each.sent - count) for each in outcome.channels for count in each.delivered.values())
    text = f"{repeated:,} repeated frames dropped by receivers, {duplicated} events delivered twice, {missing} missing"
    return Observation(text, {"repeated frames": repeated > 0, "none twice": not duplicated, "all": not missing})


@row(
    12,
    "inconsistent omission",
    injected="1 of 20 frames of events is missed by some of its receivers: 1, then 2, then 4 of them",
    expected="each hard subscriber that missed one is alarmed at the deadline; others see a gap or a report",
    example='--faults "omissions p=0.05 band=hard receivers=1" --faults "omissions p=0.05 band=soft receivers=1"',
)
def inconsistent_omissions(setting: Setting) -> Observation:
    """Receivers notice the events that they miss."""
    lost = unnoticed = 0
    for receivers in (1, 2, 4) if setting.full else (1, 4):
        faults = [f"omissions p=0.05 band={band} receivers={receivers}" for band in ("hard", "soft", "none")]
        outcome = setting.simulate(*faults, duration=setting.size(1, 20))
        lost += sum(each.lost for each in outcome.channels)
        unnoticed += sum(each.unnoticed for each in outcome.channels)
    text = f"{lost:,} events missed by single receivers, {lost - unnoticed:,} of them reported"
    return Observation(text, {"some missed": lost > 0, "all reported": unnoticed == 0})


@row(
    13,
    "segments lost, duplicated, out of order",
    injected="transfers of 50 bytes with 0.1, 1 and 10 % of their frames lost, 10 % duplicated, 1 % swapped",
    expected="0 wrong payloads in 1,000,000; as many delivered as have all frames; losses noticed",
    example='--faults "losses p=0.01 band=none" --faults "swaps p=0.01 band=none"',
)
def segments(setting: Setting) -> Observation:
    """Payloads reassembled by a receiver alone, and by receivers on the bus."""
    transfers = int(setting.size(2_000, 200_000))
    results = [
        deliver_transfers(transfers, setting.seed, **fault)
        for fault in ({"loss": 0.001}, {"loss": 0.01}, {"loss": 0.1}, {"duplicated": 0.1}, {"swapped": 0.01})
    ]
    faults = [f"{fault} p=0.02 band=none" for fault in ("losses", "swaps", "duplicates")]
    outcome = setting.simulate(*faults, duration=setting.size(2, 20))
    long = outcome.of_class("none")
    unnoticed, wrong = sum(each.unnoticed for each in long), sum(result.wrong for result in results)
    shares = " ".join(f"{result.delivered / result.sent:.1%}" for result in results)
    text = (
        f"{wrong} wrong payloads in {transfers * len(results):,} transfers, delivered {shares}; on the bus "
        f"{sum(each.lost for each in long)} of {sum(each.sent for each in long)} events lost, {unnoticed} unnoticed"
    )
    shares_right = all(result.as_expected for result in results)
    return Observation(text, {"0 wrong": wrong == 0, "noticed": unnoticed == 0, "delivered shares": shares_right})


def _published(outcome: Outcome) -> int:
    return sum(each.published for each in outcome.of_class("hard"))
