"""Rows 8 to 10: clocks that are off, that run away, and the loss of the one that leads."""

from functools import partial

from genus.can import PreparedSystem, ScenarioRun
from genus.can._node.troubles import HardStopped, Trouble
from genus.can._plan import ChannelSpec, System
from genus.can._world.outcome import Outcome
from genus.can._world.station import Station
from tests.can.fault_table.row import Observation, Setting, row

OFFSETS_US = (10, 20, 40, 80, 160, 320)
SECOND = 1_000_000_000
PACKED_PERIOD_NS = 4_500_000
"""With it the slots of eight channels with one omission lie side by side at 1 Mbit/s."""
OFF, FILLING, LEADING = "loop-east", "camera", "monitor"
FILLER_ETAG = 8000


def packed(system: System) -> System:
    """The hard channels alone, so often that their slots lie side by side, and enough bulk to fill what they leave."""
    hard = system.hard
    found = System(system.bus, hard, system.nodes, system.source)
    for channel in hard:
        found = found.with_channel(channel.name, period_ns=PACKED_PERIOD_NS)
    filler = ChannelSpec(
        name="filler", event="Filler", node=FILLING, number=system.nodes[FILLING], etag=FILLER_ETAG, qos_class="none",
        period_ns=system.bus.longest_frame_ns, priority=1, size=8, subscribers=(hard[0].node,),
    )  # fmt: skip
    return System(found.bus, (*found.channels, filler.on_bus(found.bus)), found.nodes, found.source)


@row(
    8,
    "a clock that is off",
    injected="one station's clock jumps by ±10 to ±320 µs and nobody corrects it; slots side by side, gap 20 µs",
    expected="0 misses while it is off by half the gap at most; what is missed is told, never delivered late",
    example='--clocks perfect --faults "step node=4 by=100us at=500ms"',
)
def offset(setting: Setting) -> Observation:
    """Misses of the station itself and of the others, by offset."""
    prepared = PreparedSystem.of(packed(setting.system))
    allowed = setting.system.bus.gap_ns // 2_000
    lines, right = [], True
    for micros in OFFSETS_US if setting.full else OFFSETS_US[::3]:
        own = others = 0
        for sign in ("", "-"):
            outcome = setting.simulate(
                f"step node={setting.number(OFF)} by={sign}{micros}us at=0s", "exactly count=1", prepared=prepared,
                seconds=setting.size(0.3, 5), clocks="perfect", confinement=False, exact_lengths=False,
            )  # fmt: skip
            mine, theirs = _misses(outcome)
            own, others = own + mine, others + theirs
            right &= all(each.late == 0 for each in outcome.of_class("hard"))
        right &= micros > allowed or own == others == 0
        lines.append(f"{micros} µs {own}/{others}")
    return Observation(f"missed by itself/others: {', '.join(lines)}; none late", right)


def _misses(outcome: Outcome) -> tuple[int, int]:
    """Alarms about the channels of the station that is off, and about the others."""
    counts = {True: 0, False: 0}
    for result in outcome.of_class("hard"):
        counts[result.node == OFF] += sum(result.alarms.values())
    return counts[True], counts[False]


@row(
    9,
    "synchronisation lost",
    injected="the only station that may lead the clocks stops at 1 s; the others drift apart by up to 200 ppm",
    expected="hard programs are told before clocks differ by the gap; no event outside its slot, none late",
    example='--master monitor --faults "crash node=2 at=1s"',
)
def synchronisation_lost(setting: Setting) -> Observation:
    """How long hard channels hold over, and how far clocks are apart when they stop."""
    fault = f"crash node={setting.number(LEADING)} at=1s"
    run = ScenarioRun(setting.scenario(fault, seconds=setting.size(1.5, 3), masters=(LEADING,)))
    stops: dict[str, int] = {}
    apart: list[int] = [0]
    run.world.observation.on_trouble.append(partial(_note_stop, run, stops, apart))
    for _ in run.advance():
        pass
    outcome = run.outcome()
    hard = run.system.hard
    concerned = {name for channel in hard for name in (channel.node, *channel.subscribers)} - {LEADING}
    last = (max(stops.values(), default=0) - SECOND) / 1e6
    outside = outcome.dropped.get("hard, outside its slot", 0)
    late = sum(each.late for each in outcome.of_class("hard"))
    gap = setting.system.bus.gap_ns
    text = (
        f"{len(stops)} of {len(concerned)} stations stopped within {last:.0f} ms, clocks {max(apart) / 1000:.2f} µs "
        f"apart, gap {gap / 1000:g} µs; {outside} frames outside their slots, {late} late"
    )
    return Observation(text, set(stops) == concerned and max(apart) <= gap and outside == late == 0)


def _note_stop(run: ScenarioRun, stops: dict[str, int], apart: list[int], station: Station, trouble: Trouble) -> None:
    """Note when a station is told that its clock is not good enough, and how far all are apart then."""
    now = run.world.now_ns
    if isinstance(trouble, HardStopped) and now >= SECOND:
        stops[station.name] = now
        views = [each.bus_time(now) for each in run.world.stations.values() if each.is_up]
        apart.append(max(views) - min(views))


@row(
    10,
    "crash of the master of time",
    injected="the station that leads the clocks stops",
    expected="another one leads in three periods; the other hard channels go on without a miss",
    example='--faults "crash node=1 at=1s"',
)
def master_crash(setting: Setting) -> Observation:
    """Hold-over and fail-over."""
    run = ScenarioRun(
        setting.scenario(f"crash node={setting.number('controller')} at=1s", seconds=setting.size(1.5, 5))
    )
    for _ in run.advance():
        pass
    leads = [name for name, each in run.world.stations.items() if each.is_up and _is_master(run, name)]
    outcome = run.outcome()
    hard = outcome.of_class("hard")
    missed = sum(each.alarms["monitor"] + each.not_sent for each in hard)
    stopped = outcome.troubles.get("HardStopped", 0)
    events = sum(each.published for each in hard)
    text = f"{' and '.join(leads)} leads; {missed} of {events:,} hard events missed, {stopped} stops"
    delivered = all(each.delivered["monitor"] == each.published for each in hard)
    return Observation(text, len(leads) == 1 and missed == stopped == 0 and delivered)


def _is_master(run: ScenarioRun, name: str) -> bool:
    time = run.world.stations[name].node.time
    return bool(getattr(time, "is_master", False))
