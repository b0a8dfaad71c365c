"""Rows 8 to 10: clock offset, loss of synchronisation, and the crash of the time master."""

from functools import partial

from genus.can import PreparedSystem
from genus.can._node.problems import DeliveryProblem, HardStopped
from genus.can._plan.system import ChannelSpec, System
from genus.can._world.outcome import Outcome
from genus.can._world.station import Station
from genus.can.types import ScenarioRun
from tests.can.fault_table.row import Observation, Setting, count_misses, count_unreported, row

OFFSETS_US = (10, 20, 40, 80, 160, 320)
SECOND = 1_000_000_000
PACKED_PERIOD_NS = 4_500_000
"""The period with which the slots of eight channels with one omission are side by side at 1 Mbit/s."""
OFFSET_NODE, FILLER_NODE, MASTER = "loop-east", "camera", "monitor"
FILLER_ETAG = 8000
MAX_PERIODS = 3
STEP_NS = 1_000_000
FOREVER = float("inf")


def pack(system: System) -> System:
    """The hard channels only, so often that their slots are side by side, and bulk frames in the time left."""
    hard = system.hard
    found = System(system.bus, hard, system.nodes, system.source)
    for channel in hard:
        found = found.with_channel(channel.name, period_ns=PACKED_PERIOD_NS)
    filler = ChannelSpec(
        name="filler", event="Filler", node=FILLER_NODE, number=system.nodes[FILLER_NODE], etag=FILLER_ETAG,
        qos_class="none", period_ns=system.bus.longest_frame_ns, priority=1, size=8, subscribers=(hard[0].node,),
    )  # fmt: skip
    return System(found.bus, (*found.channels, filler.on_bus(found.bus)), found.nodes, found.source)


@row(
    8,
    "clock offset",
    injected="one station's clock jumps by ±10 to ±320 µs and is not corrected; slots side by side, gap 20 µs",
    expected="0 misses up to an offset of half the gap; missed events are reported, never delivered late",
    example='--clocks perfect --faults "step node=4 by=100us at=500ms"',
)
def offset(setting: Setting) -> Observation:
    """Misses of the station itself and of other stations, by offset."""
    prepared = PreparedSystem.of(pack(setting.system))
    allowed = setting.system.bus.gap_ns // 2_000
    lines, kept = [], True
    late = unreported = overrun = 0
    for micros in OFFSETS_US if setting.full else OFFSETS_US[::3]:
        own = others = 0
        for sign in ("", "-"):
            outcome = setting.simulate(
                f"step node={setting.number(OFFSET_NODE)} by={sign}{micros}us at=0s", "exactly count=1",
                prepared=prepared, duration=setting.size(0.3, 5), clocks="perfect", confinement=False,
                exact_lengths=False,
            )  # fmt: skip
            mine, theirs = _misses(outcome)
            own, others = own + mine, others + theirs
            hard = outcome.of_class("hard")
            late += sum(each.late for each in hard)
            unreported += count_unreported(hard)
            overrun += sum(each.missed for each in hard)
        kept &= micros > allowed or own == others == 0
        lines.append(f"{micros} µs {own}/{others}")
    text = (
        f"missed by itself/others: {', '.join(lines)}; {unreported} not reported, {late} delivered late; "
        f"{overrun:,} told as sent after the end of their slot by the sender's clock"
    )
    return Observation(text, {"0 misses in half the gap": kept, "reported": not unreported, "none late": not late})


def _misses(outcome: Outcome) -> tuple[int, int]:
    """Alarms about the channels of the station with the offset, and about other channels."""
    counts = {True: 0, False: 0}
    for result in outcome.of_class("hard"):
        counts[result.node == OFFSET_NODE] += sum(result.alarms.values())
    return counts[True], counts[False]


@row(
    9,
    "synchronisation lost",
    injected="the only possible time master stops at 1 s; the other clocks drift apart by up to 200 ppm",
    expected="hard programs are informed before clocks differ by the gap; no event outside its slot, none late",
    example='--clock-master monitor --faults "crash node=2 at=1s"',
)
def synchronisation_lost(setting: Setting) -> Observation:
    """How long hard channels continue, and how far clocks are apart when they stop."""
    fault = f"crash node={setting.number(MASTER)} at=1s"
    stops: dict[str, int] = {}
    apart: list[int] = [0]
    with ScenarioRun(setting.scenario(fault, duration=setting.size(1.5, 3), masters=(MASTER,))) as run:
        run.world.observation.on_problem.append(partial(_record_stop, run, stops, apart))
        for _ in run.advance():
            pass
        outcome = run.outcome()
    affected = {name for channel in setting.system.hard for name in (channel.node, *channel.subscribers)} - {MASTER}
    last = (max(stops.values(), default=0) - SECOND) / 1e6
    outside = outcome.dropped.get("hard, outside its slot", 0)
    late = sum(each.late for each in outcome.of_class("hard"))
    gap = setting.system.bus.gap_ns
    text = (
        f"{len(stops)} of {len(affected)} stations stopped within {last:.0f} ms, clocks {max(apart) / 1000:.2f} µs "
        f"apart, gap {gap / 1000:g} µs; {outside} frames outside their slots, {late} late"
    )
    expected = {"all informed": set(stops) == affected, "within the gap": max(apart) <= gap}
    return Observation(text, expected | {"none outside its slot": not outside, "none late": not late})


def _record_stop(
    run: ScenarioRun, stops: dict[str, int], apart: list[int], station: Station, trouble: DeliveryProblem
) -> None:
    """Record when a station stops because of its clock, and how far all clocks are apart then."""
    now = run.world.now_ns
    if isinstance(trouble, HardStopped) and now >= SECOND:
        stops[station.name] = now
        views = [each.bus_time(now) for each in run.world.stations.values() if each.is_up]
        apart.append(max(views) - min(views))


@row(
    10,
    "crash of the time master",
    injected="the time master stops",
    expected="another station is master within three periods; the other hard channels continue without a miss",
    example='--faults "crash node=1 at=1s"',
)
def master_crash(setting: Setting) -> Observation:
    """Another station becomes master, and hard channels continue until then."""
    fault = f"crash node={setting.number('controller')} at=1s"
    took_ns = None
    with ScenarioRun(setting.scenario(fault, duration=setting.size(1.5, 5))) as run:
        run.start()
        while run.world.now_ns < run.ends_ns:
            run.world.run_ns(STEP_NS)
            if took_ns is None and run.world.now_ns > SECOND and _masters(run):
                took_ns = run.world.now_ns - SECOND
        masters = _masters(run)
        outcome = run.outcome()
    periods = FOREVER if took_ns is None else took_ns / setting.system.bus.sync_period_ns
    hard = outcome.of_class("hard")
    missed = sum(each.alarms["monitor"] for each in hard) + count_misses(hard)
    stopped = outcome.problems.get("HardStopped", 0)
    events = sum(each.published for each in hard)
    text = (
        f"{' and '.join(masters) or 'nobody'} is master after {periods:.1f} periods; "
        f"{missed} of {events:,} hard events missed, {stopped} stops"
    )
    delivered = all(each.delivered["monitor"] == each.published for each in hard)
    expected = {"one master": len(masters) == 1, "three periods": periods <= MAX_PERIODS}
    return Observation(text, expected | {"no misses": missed == stopped == 0 and delivered})


def _masters(run: ScenarioRun) -> list[str]:
    up = [name for name, each in run.world.stations.items() if each.is_up]
    return [name for name in up if getattr(run.world.stations[name].node.time, "is_master", False)]
