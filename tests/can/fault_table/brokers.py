"""Rows 15 to 19: numbers for nodes, whatever becomes of the broker and of the nodes."""

from functools import partial
from random import Random

from genus.can import ScenarioRun
from genus.can._protocol.broker_tables import MemoryStore
from genus.can._sim.trace import Trace
from genus.can._wire.frame import BROKER_NODE, ProtocolEtag
from genus.can._world.outcome import Outcome
from tests.can.fault_table.row import Observation, Setting, row
from tests.can.fault_table.town import Town, broker_maker, town_with_broker, uids

SECOND = 1_000_000_000
MS = 1_000_000
EVERYBODY = 126
STANDBY_STATION = 126
STAGES = 16
NEWCOMERS = 8
LONGEST_HOLD_UP_MS = 60
"""The time-out of a stage, and the 32 frames of the next node."""


@row(
    15,
    "power-up of 126 nodes together",
    injected="126 nodes with random uids are switched on at once, at 1 Mbit/s and at 125 kbit/s",
    expected="unique numbers, in 0.7 s at 1 Mbit/s and 4.8 s at 125 kbit/s",
)
def power_up(setting: Setting) -> Observation:
    """How long the configuration protocol takes."""
    lines, right = [], True
    for bitrate, limit in ((1_000_000, 0.7), (125_000, 4.8)) if setting.full else ((1_000_000, 0.7),):
        town = town_with_broker(bitrate, setting.seed, synchronised=setting.full)
        for uid in uids(EVERYBODY, setting.seed):
            town.add(uid)
        while len(town.configured_at) < EVERYBODY and town.simulation.now < 10 * SECOND:
            town.simulation.run(town.simulation.now + 10 * MS)
        took = max(town.configured_at.values(), default=0) / SECOND
        right &= len(town.numbers) == EVERYBODY and town.are_unique and not town.doubled and took < limit
        lines.append(f"{len(set(town.numbers.values()))} different numbers in {took:.3f} s at {bitrate // 1000} kbit/s")
    return Observation(", ".join(lines), right)


@row(
    16,
    "crash and restart of the broker",
    injected="the broker is killed at 200 random moments, every other time with its tables lost; nodes join and leave",
    expected="no number given twice; every event of the channels that run is delivered",
)
def broker_crashes(setting: Setting) -> Observation:
    """Kills at random moments of configuration, binding and nothing at all."""
    kills = int(setting.size(10, 200))
    random = Random(f"kills {setting.seed}")
    pauses = [random.randrange(5 * MS, 250 * MS) for _ in range(kills)]
    run = ScenarioRun(setting.scenario(broker=True, seconds=sum(pauses) / SECOND + 0.5, guards=False))
    run.start()
    town = Town(run.world.simulation, setting.prepared.typed.catalog)
    arrivals = enumerate(uids(NEWCOMERS, setting.seed))
    newcomers = [town.add(uid, run.began_ns + 20 * MS * place) for place, uid in arrivals]
    _schedule_kills(run, town, newcomers, pauses, random)
    _advance(run)
    joined, doubled = len(town.configured_at), town.doubled + _doubled(run, town)
    outcome = run.outcome()
    lost = _not_delivered(outcome)
    events = sum(each.published for each in outcome.channels)
    text = (
        f"{kills} kills, {len(pauses) // 2} with tables lost; {joined} of {NEWCOMERS} newcomers have numbers, "
        f"{doubled} numbers given twice; {lost} of {events:,} events not delivered"
    )
    return Observation(text, doubled == lost == 0 and joined == NEWCOMERS and town.are_unique)


def _schedule_kills(run: ScenarioRun, town: Town, newcomers: list[int], pauses: list[int], random: Random) -> None:
    """Kill, restart a little later, and put a new node in the place of one of the newcomers now and then."""
    at = run.began_ns
    for place, pause in enumerate(pauses):
        at += pause
        run.world.simulation.at(at, run.world.simulation.host(BROKER_NODE).crash)
        run.world.simulation.at(at + random.randrange(MS, 5 * MS), partial(_restart_broker, run, place % 2 == 1))
        if place % 4 == 3 and place < len(pauses) - 8:
            station, uid = random.choice(newcomers), random.randrange(1, 1 << 63)
            run.world.simulation.at(at + random.randrange(pause), partial(_replace, town, station, uid))


def _restart_broker(run: ScenarioRun, tables_lost: bool) -> None:
    if tables_lost:
        run.world.store.text = None
    run.world.simulation.restart(BROKER_NODE)


def _replace(town: Town, station: int, uid: int) -> None:
    if station in town.simulation.hosts:
        town.configured_at.pop(station, None)
        town.replace(station, uid)


def _doubled(run: ScenarioRun, town: Town) -> int:
    """Numbers that a newcomer shares with a node of the system."""
    own = {station.node.number for station in run.world.stations.values()}
    return sum(number in own for number in town.numbers.values())


def _not_delivered(outcome: Outcome) -> int:
    return sum(each.published - count for each in outcome.channels for count in each.delivered.values())


def _advance(run: ScenarioRun) -> None:
    while run.world.now_ns < run.ends_ns:
        run.world.run_ns(min(10 * MS, run.ends_ns - run.world.now_ns))


@row(
    17,
    "two brokers after a partition",
    injected="the bus is cut in two for 5 s with a broker on either side; both give numbers to new nodes",
    expected="one broker, of the lower uid, and unique numbers again within 1 s",
)
def two_brokers(setting: Setting) -> Observation:
    """Who yields, and how soon numbers are unique."""
    town = town_with_broker(1_000_000, setting.seed)
    simulation = town.simulation
    standby = broker_maker(2, town.catalog, MemoryStore(), simulation, standby=True)
    simulation.add_host(STANDBY_STATION, standby)
    drawn = uids(12, setting.seed)
    here, away = [town.add(uid) for uid in drawn[:3]], [town.add(uid) for uid in drawn[3:6]]
    simulation.run(SECOND)
    simulation.part([STANDBY_STATION, *away])
    simulation.run(5 * SECOND)
    later = [town.add(uid) for uid in drawn[6:]]
    simulation.run(simulation.now + MS)
    simulation.part(later[:3])
    simulation.run(6 * SECOND)
    doubled = len(town.numbers) - len(set(town.numbers.values()))
    simulation.heal()
    healed = simulation.now
    while not _settled(town) and simulation.now < healed + 10 * SECOND:
        simulation.run(simulation.now + 10 * MS)
    took = (simulation.now - healed) / SECOND
    nodes = len(here) + len(away) + len(later)
    text = f"{doubled} numbers were given twice to {nodes} nodes; settled {took:.2f} s after healing"
    simulation.run(simulation.now + 2 * SECOND)
    return Observation(text, doubled > 0 and took < 1 and _settled(town))


def _settled(town: Town) -> bool:
    hosts = town.simulation.hosts
    first, second = hosts[BROKER_NODE].machine, hosts[STANDBY_STATION].machine
    one = getattr(first, "active", False) and not getattr(second, "active", True)
    return one and town.are_unique and len(town.numbers) == len(town.nodes)


@row(
    18,
    "the same uid twice",
    injected="two nodes with one uid are switched on, together and 2 s apart",
    expected="both are alarmed within 2 s",
)
def duplicate_uid(setting: Setting) -> Observation:
    """Claims tell."""
    times = []
    for apart in (0, 2 * SECOND):
        town = town_with_broker(1_000_000, setting.seed)
        uid = uids(1, setting.seed)[0]
        pair = town.add(uid), town.add(uid, apart or None)
        town.simulation.run(apart + 4 * SECOND)
        first = {station: at for at, station, notice in reversed(town.conflicts) if notice.uid == uid}
        times.append(max(first.get(station, 1 << 62) for station in pair) - apart)
    text = " and ".join(f"{took / SECOND:.2f} s" for took in times)
    return Observation(f"both alarmed after {text}", all(took < 2 * SECOND for took in times))


@row(
    19,
    "restart in the middle",
    injected="a node stops after each of its 16 nibbles while another waits; a sender stops within a long event",
    expected="the broker serves the other after 50 ms at most; the rest of the event is dropped, later ones come",
)
def restart_in_the_middle(setting: Setting) -> Observation:
    """How long an unfinished configuration holds others up."""
    stages = range(1, STAGES + 1) if setting.full else (1, 8, 16)
    longest = max(_held_up(setting.seed, stage) for stage in stages) / MS
    run, crashes = _crash_within_events(setting, "camera", "picture")
    picture = run.outcome().channel("picture")
    text = (
        f"the other has its number {longest:.1f} ms later; {picture.published} long events and {crashes} crashes: "
        f"{picture.sent} sent, {min(picture.delivered.values())} delivered whole"
    )
    whole = set(picture.delivered.values()) == {picture.sent} and picture.sent == picture.published - crashes > 0
    return Observation(text, longest <= LONGEST_HOLD_UP_MS and whole and crashes > 0)


def _crash_within_events(setting: Setting, node: str, channel: str) -> tuple[ScenarioRun, int]:
    """Crash a node in the middle of every other event of a channel, and start it again 50 ms later."""
    run = ScenarioRun(setting.scenario(seconds=setting.size(2, 10)))
    run.start()
    number = setting.number(node)
    crashes = seen = 0
    while run.world.now_ns < run.ends_ns:
        run.world.run_ns(MS)
        published = sum(each.published for each in run.world.observation.trackers if each.name == channel)
        if published > seen:
            seen = published
            if seen % 2:
                crashes += 1
                run.world.simulation.host(number).crash()
                run.world.simulation.at(run.world.now_ns + 50 * MS, lambda: run.world.simulation.restart(number))
    return run, crashes


def _held_up(seed: int, nibbles: int) -> int:
    """How long after a node stopped, which had sent so many nibbles, the next one has its number."""
    town = town_with_broker(1_000_000, seed)
    trace = town.simulation.bus.trace = Trace()
    town.simulation.run(100 * MS)
    first, second = uids(2, seed)
    stopping, waiting = town.add(min(first, second)), town.add(max(first, second))
    while _nibbles(trace, stopping) < nibbles and waiting not in town.configured_at:
        town.simulation.run(town.simulation.now + 20_000)
    stopped = town.simulation.now
    town.crash(stopping)
    while waiting not in town.configured_at and town.simulation.now < stopped + SECOND:
        town.simulation.run(town.simulation.now + MS // 10)
    return town.simulation.now - stopped


def _nibbles(trace: Trace, station: int) -> int:
    return sum(passage.id & 0x3FFF == ProtocolEtag.RSI and station in passage.senders for passage in trace)
