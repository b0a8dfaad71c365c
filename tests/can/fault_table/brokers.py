"""Rows 15 to 19: node numbers stay unique when brokers and nodes crash, restart or are separated."""

from functools import partial
from random import Random

from genus.can._protocol.broker_tables import MemoryStore
from genus.can._sim.trace import Trace
from genus.can._wire.frame import BROKER_NODE, ProtocolEtag
from genus.can._world.outcome import Outcome
from genus.can.types import ScenarioRun
from tests.can.fault_table.dynamic_nodes import DynamicNodes, broker_maker, make_uids, nodes_with_broker
from tests.can.fault_table.row import Observation, Setting, row

SECOND = 1_000_000_000
MS = 1_000_000
ALL_NODES = 126
STANDBY_STATION = 126
STAGES = 16
NEWCOMERS = 8
MAX_DELAY_MS = 60
"""The timeout of a stage, and the 32 frames of the next node."""


@row(
    15,
    "power-up of 126 nodes together",
    injected="126 nodes with random uids are switched on at once, at 1 Mbit/s and at 125 kbit/s",
    expected="unique numbers, in 0.7 s at 1 Mbit/s and 4.8 s at 125 kbit/s",
)
def power_up(setting: Setting) -> Observation:
    """Measure how long the configuration protocol takes."""
    lines, unique, in_time = [], True, True
    for bitrate, limit in ((1_000_000, 0.7), (125_000, 4.8)) if setting.full else ((1_000_000, 0.7),):
        nodes = nodes_with_broker(bitrate, setting.seed, synchronised=setting.full)
        for uid in make_uids(ALL_NODES, setting.seed):
            nodes.add(uid)
        while len(nodes.configured_at) < ALL_NODES and nodes.simulation.now < 10 * SECOND:
            nodes.simulation.run(nodes.simulation.now + 10 * MS)
        took = max(nodes.configured_at.values(), default=0) / SECOND
        unique &= len(nodes.numbers) == ALL_NODES and nodes.are_unique and not nodes.duplicates
        in_time &= took < limit
        lines.append(
            f"{len(set(nodes.numbers.values()))} different numbers in {took:.3f} s at {bitrate // 1000} kbit/s"
        )
    return Observation(", ".join(lines), {"unique": unique, "in time": in_time})


@row(
    16,
    "crash and restart of the broker",
    injected="the broker is killed at 200 random moments, every other time with its tables lost; nodes join and leave",
    expected="no number given twice; every event of the running channels is delivered",
)
def broker_crashes(setting: Setting) -> Observation:
    """Kill the broker at random moments, during configuration, during binding and when it is idle."""
    kills = int(setting.size(10, 200))
    random = Random(f"kills {setting.seed}")
    pauses = [random.randrange(5 * MS, 250 * MS) for _ in range(kills)]
    with ScenarioRun(setting.scenario(broker=True, duration=sum(pauses) / SECOND + 0.5, guards=False)) as run:
        run.start()
        nodes = DynamicNodes(run.world.simulation, setting.prepared.typed.catalog)
        arrivals = enumerate(make_uids(NEWCOMERS, setting.seed))
        newcomers = [nodes.add(uid, run.began_ns + 20 * MS * index) for index, uid in arrivals]
        _schedule_kills(run, nodes, newcomers, pauses, random)
        _advance(run)
        joined, duplicates = len(nodes.configured_at), nodes.duplicates + _count_shared(run, nodes)
        outcome = run.outcome()
    lost = _count_not_delivered(outcome)
    events = sum(each.published for each in outcome.channels)
    text = (
        f"{kills} kills, {len(pauses) // 2} with tables lost; {joined} of {NEWCOMERS} newcomers have numbers, "
        f"{duplicates} numbers given twice; {lost} of {events:,} events not delivered"
    )
    expected = {"unique": duplicates == 0 and nodes.are_unique, "all delivered": lost == 0}
    return Observation(text, expected | {"all joined": joined == NEWCOMERS})


def _schedule_kills(
    run: ScenarioRun, nodes: DynamicNodes, newcomers: list[int], pauses: list[int], random: Random
) -> None:
    """Schedule kills, restarts a little later, and now and then a new node in place of a newcomer."""
    at = run.began_ns
    for index, pause in enumerate(pauses):
        at += pause
        run.world.simulation.at(at, run.world.simulation.host(BROKER_NODE).crash)
        run.world.simulation.at(at + random.randrange(MS, 5 * MS), partial(_restart_broker, run, index % 2 == 1))
        if index % 4 == 3 and index < len(pauses) - 8:
            station, uid = random.choice(newcomers), random.randrange(1, 1 << 63)
            run.world.simulation.at(at + random.randrange(pause), partial(_replace, nodes, station, uid))


def _restart_broker(run: ScenarioRun, tables_lost: bool) -> None:
    if tables_lost:
        run.world.store.text = None
    run.world.simulation.restart(BROKER_NODE)


def _replace(nodes: DynamicNodes, station: int, uid: int) -> None:
    if station in nodes.simulation.hosts:
        nodes.configured_at.pop(station, None)
        nodes.replace(station, uid)


def _count_shared(run: ScenarioRun, nodes: DynamicNodes) -> int:
    """How many numbers a newcomer shares with a node of the system."""
    own = {station.node.number for station in run.world.stations.values()}
    return sum(number in own for number in nodes.numbers.values())


def _count_not_delivered(outcome: Outcome) -> int:
    return sum(each.published - count for each in outcome.channels for count in each.delivered.values())


def _advance(run: ScenarioRun) -> None:
    while run.world.now_ns < run.ends_ns:
        run.world.run_ns(min(10 * MS, run.ends_ns - run.world.now_ns))


@row(
    17,
    "two brokers after a partition",
    injected="the bus is cut in two for 5 s with a broker on either side; both give numbers to new nodes",
    expected="only the broker with the lower uid is active, and numbers are unique again, within 1 s",
)
def two_brokers(setting: Setting) -> Observation:
    """Which broker stops, and how soon numbers are unique."""
    nodes = nodes_with_broker(1_000_000, setting.seed)
    simulation = nodes.simulation
    standby = broker_maker(2, nodes.catalog, MemoryStore(), simulation, standby=True)
    simulation.add_host(STANDBY_STATION, standby)
    drawn = make_uids(12, setting.seed)
    here, away = [nodes.add(uid) for uid in drawn[:3]], [nodes.add(uid) for uid in drawn[3:6]]
    simulation.run(SECOND)
    simulation.partition([STANDBY_STATION, *away])
    simulation.run(5 * SECOND)
    later = [nodes.add(uid) for uid in drawn[6:]]
    simulation.run(simulation.now + MS)
    simulation.partition(later[:3])
    simulation.run(6 * SECOND)
    duplicates = len(nodes.numbers) - len(set(nodes.numbers.values()))
    simulation.end_partition()
    ended = simulation.now
    while not _is_settled(nodes) and simulation.now < ended + 10 * SECOND:
        simulation.run(simulation.now + 10 * MS)
    took = (simulation.now - ended) / SECOND
    count = len(here) + len(away) + len(later)
    text = f"{duplicates} numbers were given twice to {count} nodes; settled {took:.2f} s after the partition"
    simulation.run(simulation.now + 2 * SECOND)
    expected = {"duplicates before": duplicates > 0, "within 1 s": took < 1}
    return Observation(text, expected | {"stays so": _is_settled(nodes)})


def _is_settled(nodes: DynamicNodes) -> bool:
    hosts = nodes.simulation.hosts
    first, second = hosts[BROKER_NODE].machine, hosts[STANDBY_STATION].machine
    one = getattr(first, "active", False) and not getattr(second, "active", True)
    return one and nodes.are_unique and len(nodes.numbers) == len(nodes.nodes)


@row(
    18,
    "the same uid twice",
    injected="two nodes with one uid are switched on, together and 2 s apart",
    expected="both are alarmed within 2 s",
)
def duplicate_uid(setting: Setting) -> Observation:
    """Both nodes learn of it by the claims of the other."""
    times = []
    for apart in (0, 2 * SECOND):
        nodes = nodes_with_broker(1_000_000, setting.seed)
        uid = make_uids(1, setting.seed)[0]
        pair = nodes.add(uid), nodes.add(uid, apart or None)
        nodes.simulation.run(apart + 4 * SECOND)
        first = {station: at for at, station, notice in reversed(nodes.conflicts) if notice.uid == uid}
        times.append(max(first.get(station, float("inf")) for station in pair) - apart)
    text = " and ".join(f"{took / SECOND:.2f} s" for took in times)
    return Observation(f"the second of the two alarmed after {text}", {"2 s": max(times) < 2 * SECOND})


@row(
    19,
    "restart during configuration or an event",
    injected="a node stops after each of its 16 nibbles while another waits; a sender stops within a long event",
    expected=f"the other has its number {MAX_DELAY_MS} ms later at most; "
    "the rest of the event is dropped, later ones arrive",
)
def restart_in_the_middle(setting: Setting) -> Observation:
    """How long an unfinished configuration delays that of others."""
    stages = range(1, STAGES + 1) if setting.full else (1, 8, 16)
    longest = max(_delay_ns(setting.seed, stage) for stage in stages) / MS
    outcome, crashes = _crash_within_events(setting, "camera", "picture")
    picture = outcome.channel("picture")
    text = (
        f"the other has its number {longest:.1f} ms later; {picture.published} long events and {crashes} crashes: "
        f"{picture.sent} sent, {min(picture.delivered.values())} delivered whole"
    )
    whole = set(picture.delivered.values()) == {picture.sent} and picture.sent == picture.published - crashes > 0
    return Observation(text, {f"{MAX_DELAY_MS} ms": longest <= MAX_DELAY_MS, "whole": whole and crashes > 0})


def _crash_within_events(setting: Setting, node: str, channel: str) -> tuple[Outcome, int]:
    """Crash a node in the middle of every other event of a channel, and start it again 50 ms later."""
    number = setting.number(node)
    crashes = events = 0
    with ScenarioRun(setting.scenario(duration=setting.size(2, 10))) as run:
        run.start()
        while run.world.now_ns < run.ends_ns:
            run.world.run_ns(MS)
            published = sum(each.published for each in run.world.observation.trackers if each.name == channel)
            if published > events:
                events = published
                if events % 2:
                    crashes += 1
                    run.world.simulation.host(number).crash()
                    run.world.simulation.at(run.world.now_ns + 50 * MS, lambda: run.world.simulation.restart(number))
        return run.outcome(), crashes


def _delay_ns(seed: int, nibbles: int) -> int:
    """How long after a node stopped, having sent this many nibbles, the next one has its number."""
    nodes = nodes_with_broker(1_000_000, seed)
    trace = nodes.simulation.bus.trace = Trace()
    nodes.simulation.run(100 * MS)
    first, second = make_uids(2, seed)
    stopping, waiting = nodes.add(min(first, second)), nodes.add(max(first, second))
    while _nibbles(trace, stopping) < nibbles and waiting not in nodes.configured_at:
        nodes.simulation.run(nodes.simulation.now + 20_000)
    stopped = nodes.simulation.now
    nodes.crash(stopping)
    while waiting not in nodes.configured_at and nodes.simulation.now < stopped + SECOND:
        nodes.simulation.run(nodes.simulation.now + MS // 10)
    return nodes.simulation.now - stopped


def _nibbles(trace: Trace, station: int) -> int:
    return sum(passage.id & 0x3FFF == ProtocolEtag.RSI and station in passage.senders for passage in trace)
