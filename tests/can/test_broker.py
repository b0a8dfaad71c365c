"""The broker: it forgets nothing it granted, can be restarted at any time, and has a standby."""

from functools import partial
from itertools import product
from pathlib import Path
from random import Random

import pytest

from genus import Event
from genus.can._machine import Load
from genus.can._protocol.broker import Broker
from genus.can._protocol.broker_tables import AnnouncedChannel, BrokerTables, FileStore, MemoryStore
from genus.can._protocol.messages import (
    Announce,
    Claim,
    GetEtag,
    Heartbeat,
    Nibble,
    NumberGrant,
    QosClass,
    Restart,
    Supply,
    catalog_digest,
    parse_message,
)
from genus.can._protocol.notices import (
    BROKER_TIMEOUT,
    LEASE,
    STAGE_TIMEOUT,
    Bound,
    BrokerSeen,
    Configured,
    NodeIdConflict,
    Notice,
    RoleChanged,
    StoreFailed,
)
from genus.can._sim.bus import SimBus
from genus.can._sim.controller import Controller, ControllerListener
from genus.can._sim.errors import Corrupt, FaultEffect, MissedBy, Transmission
from genus.can._sim.faults import corrupt_randomly
from genus.can._sim.simulation import Host
from genus.can._wire.frame import ID_MASK, Frame, ProtocolEtag, subject_uid
from genus.catalog import Catalog
from genus.errors import BusError, CatalogConflict, CatalogUnavailable, TableDamaged

from .stations import MS, Station, System


class Loop(Event):
    lane: int


class Radar(Loop):
    angle: float


LOOP, RADAR = subject_uid("Loop"), subject_uid("Radar")


def city() -> Catalog:
    catalog = Catalog()
    catalog.register(Loop, Radar)
    return catalog


def broker_of(host: Host) -> Broker:
    assert isinstance(host.machine, Broker)
    return host.machine


# -- restarts ----------------------------------------------------------------------------------------------------------


class Watch:
    """A system whose broker and nodes crash and come back; after every step numbers are unique, and none was lost."""

    def __init__(self, seed: int, *, lose_tables: bool, stations: int = 10, noisy: bool = False) -> None:
        self.random = Random(f"{seed} {lose_tables} {noisy}")
        self.lose_tables = lose_tables
        self.store = MemoryStore()
        self.system = System()
        self.host = self.system.broker(store=self.store, catalog=city())
        self.pool = [self.random.getrandbits(64) for _ in range(100)]
        self.stations = [self.new_station() for _ in range(stations)]
        self.hosts = [self.system.add(station) for station in self.stations]
        self.known: dict[Station, int] = {}
        if noisy:
            self.system.bus.add_fault_hook(self.spoil)

    def spoil(self, seen: Transmission) -> FaultEffect | None:
        """Every fiftieth frame is corrupt_randomly, every five hundredth is missed by one station."""
        if self.random.random() < 0.02:
            return corrupt_randomly(seen, self.random)
        if self.random.random() < 0.002:
            return MissedBy((self.random.choice(seen.receivers),))
        return None

    def new_station(self) -> Station:
        """One of a hundred, so that numbers suffice."""
        return Station(self.pool.pop(self.random.randrange(len(self.pool))), subjects=[LOOP, RADAR])

    def run(self, ms: float) -> None:
        end = self.system.bus.now + round(ms * MS)
        while self.system.bus.now < end:
            self.system.run(min(1.0, (end - self.system.bus.now) / MS))
            self.check()

    def check(self) -> None:
        taken = [s.node for s, host in zip(self.stations, self.hosts, strict=True) if host.is_up and s.node]
        assert len(taken) == len(set(taken)), "two nodes have the same number"
        for station in self.stations:
            assert not station.notices_of(NodeIdConflict)
            if station.node is not None:
                assert self.known.setdefault(station, station.node) == station.node, "a node lost its number"

    def restart_broker(self) -> None:
        self.host.crash()
        self.run(self.random.choice((0.05, 1, self.random.uniform(0, 80))))
        if self.lose_tables:
            self.store.text = None
        self.host.restart(Broker(1, city(), self.store))

    def restart_a_station(self) -> None:
        index = self.random.randrange(len(self.stations))
        self.hosts[index].crash()
        self.run(self.random.uniform(0, 5))
        uid = self.stations[index].configuration.uid
        if self.random.random() < 0.7:
            self.stations[index] = Station(uid, subjects=[LOOP, RADAR])
        else:
            self.stations[index] = self.new_station()
            self.pool.append(uid)
        self.hosts[index].restart(self.stations[index])


@pytest.mark.slow
@pytest.mark.parametrize(
    ("restarts", "lose_tables", "noisy"),
    [
        (40, False, False),
        (40, True, True),
        *(pytest.param(1_000, *case, marks=pytest.mark.slow) for case in product((False, True), repeat=2)),
    ],
)
def test_a_broker_killed_at_random_points_never_assigns_a_number_twice(
    restarts: int, lose_tables: bool, noisy: bool
) -> None:
    """Whether it finds its tables or has to learn from claims; nodes that have a number and tags keep them."""
    watch = Watch(restarts, lose_tables=lose_tables, noisy=noisy)
    watch.run(150)
    for _ in range(restarts):
        watch.run(watch.random.choice((watch.random.uniform(0, 8), watch.random.uniform(0, 120))))
        watch.restart_broker()
        for _ in range(watch.random.randrange(3)):
            watch.restart_a_station()
    watch.run(2_500)
    assert all(station.node is not None for station in watch.stations)
    assert all({bound.subject for bound in station.notices_of(Bound)} == {LOOP, RADAR} for station in watch.stations)


class Babbler(ControllerListener):
    """A station that has a soft frame on the bus whenever it is free, until a time."""

    def __init__(self, bus: SimBus, until_ns: int) -> None:
        self.until_ns = until_ns
        self.controller = Controller(999, self)
        bus.attach(self.controller)
        self.sent(Frame(0), bus.now)

    def sent(self, frame: Frame, now: int) -> None:
        if now < self.until_ns:
            self.controller.load(0, Frame(100 << 21 | 99 << 14 | 9000, now.to_bytes(8, "big")))


def test_claims_that_have_to_wait_for_other_traffic_still_count() -> None:
    """The bus is full while the roll is called: the broker's next frame has to wait for the answers all the same."""
    system, store = System(), MemoryStore()
    host = system.broker(store=store)
    old = system.station(0x50)
    system.run(50)
    host.crash()
    store.text = None
    host.restart(Broker(1, Catalog(), store))
    new = system.station(0x40)
    while old.configuration.wake_at is None or old.configuration.wake_at > system.bus.now + 10 * MS:
        system.run(0.1)  # until it has received the roll call
    Babbler(system.bus, system.bus.now + 300 * MS)
    system.run(299)
    assert [old.node, new.node] == [1, None]
    system.run(30)
    assert [old.node, new.node] == [1, 2]


def test_claims_that_are_corrupted_still_count() -> None:
    system, store = System(), MemoryStore()
    host = system.broker(store=store)
    old = system.station(0x50)
    system.run(50)

    def judge(seen: Transmission) -> FaultEffect | None:
        return Corrupt(60) if seen.frame.etag == ProtocolEtag.CLAIM and seen.attempt < 2 else None

    system.bus.add_fault_hook(judge)
    host.crash()
    store.text = None
    host.restart(Broker(1, Catalog(), store))
    new = system.station(0x40)
    system.run(60)
    assert [old.node, new.node] == [1, 2]


def test_what_is_granted_is_stored_before_it_is_said() -> None:
    store = MemoryStore()
    system = System()
    host = system.broker(store=store)
    broker = broker_of(host)
    said: list[NumberGrant] = []

    def watched(take: object = broker.take) -> list[object]:
        outputs = take()  # type: ignore[operator]
        for output in outputs:
            message = parse_message(output.frame) if isinstance(output, Load) and output.frame else None
            if isinstance(message, NumberGrant):
                said.append(message)
                assert BrokerTables(MemoryStore(store.text)).number_of(message.uid) == message.node
        return outputs  # type: ignore[no-any-return]

    broker.take = watched  # type: ignore[assignment]
    stations = [system.station(uid) for uid in range(10, 20)]
    system.run(200)
    assert len(said) == len(stations)


class BrokenStore(MemoryStore):
    broken = False

    def save(self, text: str) -> None:
        if self.broken:
            raise CatalogUnavailable("broker.json: cannot be written: No space left on device")
        super().save(text)


def test_what_cannot_be_stored_is_not_granted() -> None:
    store, notices = BrokenStore(), list[Notice]()
    system = System()
    system.add(Broker(1, city(), store, notify=notices.append))
    system.run(100)
    store.broken = True
    station = system.station(0x99)
    system.run(500)
    assert station.node is None
    assert StoreFailed("broker.json: cannot be written: No space left on device") in notices
    store.broken = False
    system.run(50)
    assert station.node == 1


def test_a_broker_that_cannot_count_its_start_does_not_serve() -> None:
    store = BrokenStore()
    store.broken = True
    system = System()
    host = system.broker(store=store)
    system.run(2_500)
    assert not broker_of(host).active
    store.broken = False
    system.run(1_100)
    assert broker_of(host).active


def test_every_start_is_another_epoch_and_nodes_get_a_notice() -> None:
    system, store = System(), MemoryStore()
    host = system.broker(store=store)
    station = system.station(0x10)
    for _ in range(3):
        system.run(100)
        host.restart(Broker(1, Catalog(), store))
    system.run(100)
    digest = catalog_digest(Catalog().text())
    assert station.notices_of(BrokerSeen) == [BrokerSeen(epoch, digest) for epoch in (1, 2, 3, 4)]


# -- numbers -----------------------------------------------------------------------------------------------------------


def serving(catalog: Catalog | None = None, store: MemoryStore | None = None) -> tuple[System, Host]:
    system = System()
    host = system.broker(catalog=catalog or city(), store=store or MemoryStore())
    system.run(40)
    return system, host


def forge(host: Host, *messages: Claim | NumberGrant | Nibble | GetEtag | Announce | Heartbeat | Restart) -> None:
    """Let a broker receive a frame that no station sent."""
    for message in messages:
        host.call(partial(host.machine.receive, message.frame()))


def test_a_number_is_given_to_another_only_when_its_node_was_silent_for_the_lease() -> None:
    system, host = serving()
    forge(host, *(Claim(number, 1000 + number) for number in range(1, 127)))
    for at_ms in (2_000, 4_000):
        system.run(at_ms)
        forge(host, *(Claim(number, 1000 + number) for number in range(1, 127) if number != 77))
    station = system.station(0x10)
    system.run(LEASE / MS)
    assert station.node == 77
    assert 1077 not in broker_of(host).numbers


def test_numbers_never_used_go_before_numbers_of_the_silent() -> None:
    system, host = serving()
    forge(host, Claim(1, 0x111), Claim(2, 0x222))
    system.run(2 * LEASE / MS)
    station = system.station(0x10)
    system.run(20)
    assert station.node == 3
    back = system.station(0x222)
    system.run(20)
    assert back.node == 2


def test_a_claim_has_precedence_over_the_tables() -> None:
    """The node that the tables know is not there, the one that claims is."""
    store = MemoryStore()
    tables = BrokerTables(store)
    tables.assign(0x10, 5)
    tables.save()
    system, host = serving(store=store)
    forge(host, Claim(5, 0x99))
    assert dict(broker_of(host).numbers) == {0x99: 5}
    returned = system.station(0x10)
    system.run(20)
    assert returned.node == 1


def test_between_two_that_claim_the_lower_uid_has_the_number() -> None:
    _, host = serving()
    forge(host, Claim(5, 0x50), Claim(5, 0x99))
    assert dict(broker_of(host).numbers) == {0x50: 5}
    forge(host, Claim(5, 0x40))
    assert dict(broker_of(host).numbers) == {0x40: 5}


# -- standby -----------------------------------------------------------------------------------------------------------


def pair(first: int = 1, second: int = 2) -> tuple[System, Host, Host]:
    """A broker and a standby."""
    system = System()
    hosts = system.broker(first, catalog=city()), system.broker(second, catalog=city(), standby=True)
    system.run(40)
    return system, *hosts


def test_a_standby_keeps_still_and_learns() -> None:
    system, first, second = pair()
    station = system.station(0x10)
    system.run(30)
    station.binding.announce(LOOP, city().etag("Loop"), QosClass.SOFT, segmented=True, size=12)
    system.hosts[-1].call(lambda now: None)
    system.run(10_000)
    assert (broker_of(first).active, broker_of(second).active) == (True, False)
    assert dict(broker_of(second).numbers) == {0x10: 1}
    assert dict(broker_of(second).channels) == {"Loop": AnnouncedChannel(QosClass.SOFT, True)}
    assert second.controller.frames == first.controller.frames == [None, None]


def test_a_standby_takes_over_when_the_broker_is_silent_for_three_seconds() -> None:
    system, first, second = pair()
    old = system.station(0x10)
    system.run(1_200)
    first.crash()
    system.run(BROKER_TIMEOUT / MS - 1_100)
    assert not broker_of(second).active
    new = system.station(0x20)
    system.run(1_400)
    assert broker_of(second).active
    assert (old.node, new.node) == (1, 2)
    assert old.notices_of(BrokerSeen)[-1].epoch == broker_of(second).epoch > old.notices_of(BrokerSeen)[0].epoch
    assert not old.notices_of(NodeIdConflict)


@pytest.mark.parametrize(("first", "second"), [(1, 2), (2, 1)])
def test_when_the_broker_comes_back_the_lower_uid_serves(first: int, second: int) -> None:
    system, one, two = pair(first, second)
    one.crash()
    system.run(3_500)
    assert broker_of(two).active
    stations = [system.station(uid) for uid in range(10, 15)]
    system.run(100)
    one.restart(Broker(first, city(), MemoryStore()))
    system.run(1_000)
    assert (broker_of(one).active, broker_of(two).active) == (first == 1, second == 1)
    stations += [system.station(uid) for uid in range(20, 25)]
    system.run(1_500)
    assert sorted(station.node or 0 for station in stations) == list(range(1, 11))
    assert not any(station.notices_of(NodeIdConflict) for station in stations)
    assert broker_of(one).numbers == broker_of(two).numbers


def test_two_brokers_that_start_together_agree_on_one() -> None:
    system = System()
    hosts = [system.broker(uid, catalog=city()) for uid in (7, 5, 6)]
    stations = [system.station(uid) for uid in range(20, 40)]
    system.run(1_500)
    assert [broker_of(host).active for host in hosts] == [False, True, False]
    assert len({station.node for station in stations}) == 20
    assert all(host.controller.tec < 128 for host in hosts)


@pytest.mark.parametrize("seed", range(5))
def test_after_a_partition_has_healed_the_lower_uid_serves_and_numbers_are_unique_again(seed: int) -> None:
    """Both halves have given the same numbers to their new nodes."""
    random = Random(seed)
    system = System()
    island = SimBus(1_000_000, scheduler=system.bus.scheduler)
    left, right = system.broker(random.choice((5, 7)), catalog=city()), system.broker(6, catalog=city(), standby=True)
    stations = [system.station(random.getrandbits(64)) for _ in range(6)]
    system.run(200)
    exiles = [right, *system.hosts[5:]]
    for host in exiles:
        host.move_to(island)
    system.run(5_000)
    assert broker_of(left).active
    assert broker_of(right).active
    for side in (0, 1):
        stations += [system.station(random.getrandbits(64)) for _ in range(4)]
        if side:
            for host in system.hosts[-4:]:
                host.move_to(island)
    system.run(500)
    assert len({station.node for station in stations}) == 10  # of 14: four numbers are there twice
    healed = system.bus.now
    for host in system.hosts:
        host.move_to(system.bus)
    while broker_of(left).active == broker_of(right).active:
        system.run(1)
    assert system.bus.now - healed < 1_000 * MS
    assert broker_of(left if broker_of(left).uid < 6 else right).active
    system.run(2_000)
    assert len({station.node for station in stations} - {None}) == 14
    assert broker_of(left).numbers == broker_of(right).numbers
    assert sum(bool(station.notices_of(NodeIdConflict)) for station in stations) == 8


def test_a_broker_that_was_off_the_bus_calls_the_roll_again() -> None:
    system, host = serving()
    broker = broker_of(host)
    host.call(lambda now: broker.bus_off(now))
    assert broker.wake_at is None
    host.call(lambda now: broker.bus_on(now))
    station = system.station(0x10)
    system.run(60)
    assert broker.active
    assert station.node == 1


def test_two_brokers_with_one_uid_are_alarmed() -> None:
    notices: list[Notice] = []
    system = System()
    host = system.add(Broker(9, city(), MemoryStore(), notify=notices.append))
    system.run(40)
    forge(host, Claim(127, 9))
    assert notices == [RoleChanged(True), NodeIdConflict(127, 9, kept=True)]


# -- the catalog -------------------------------------------------------------------------------------------------------


def test_a_catalog_that_has_grown_is_served_and_announced() -> None:
    class Camera(Event):
        frames: int

    system, host = serving()
    station = system.station(0x10)
    station.binding.bind(subject_uid("Camera"), 0)
    system.run(200)
    assert not station.notices_of(Bound)
    grown = city()
    grown.register(Camera)
    host.call(lambda now: broker_of(host).use(grown))
    system.run(20)
    assert [bound.subject for bound in station.notices_of(Bound)] == [subject_uid("Camera")]
    assert station.notices_of(BrokerSeen)[-1].digest == catalog_digest(grown.text())


def test_a_catalog_that_is_another_is_refused() -> None:
    _, host = serving()
    with pytest.raises(CatalogConflict, match="may only grow"):
        broker_of(host).use(Catalog())


# -- tables ------------------------------------------------------------------------------------------------------------


def test_tables_in_a_file_are_there_after_a_restart(tmp_path: Path) -> None:
    path = tmp_path / "broker.json"
    system = System()
    host = system.broker(store=FileStore(path))
    station = system.station(0xABCD)
    system.run(60)
    host.crash()
    assert '"000000000000abcd": 1' in path.read_text()
    host.restart(Broker(1, Catalog(), FileStore(path)))
    system.run(60)
    assert broker_of(host).epoch == 2
    assert broker_of(host).numbers == {0xABCD: station.node}


DAMAGED = {
    "not JSON": ("{", "truncated"),
    "another file": ('{"format": "genus catalog"}', "Invalid enum value"),
    "a number out of range": (
        '{"format": "genus can broker", "version": 1, "epoch": 1, '
        '"numbers": {"00000000000000aa": 127}, "channels": {}}',
        "numbers",
    ),
    "a number twice": (
        '{"format": "genus can broker", "version": 1, "epoch": 1, '
        '"numbers": {"00000000000000aa": 5, "00000000000000ab": 5}, "channels": {}}',
        "number 5 belongs to two",
    ),
    "uid 0": (
        '{"format": "genus can broker", "version": 1, "epoch": 1, "numbers": {"0000000000000000": 5}, "channels": {}}',
        "no node has uid 0",
    ),
    "no text": ("\udcff", "not UTF-8"),
}


@pytest.mark.parametrize("text", DAMAGED)
def test_a_damaged_file_is_an_error_and_stays_as_it_is(tmp_path: Path, text: str) -> None:
    path = tmp_path / "broker.json"
    damaged, message = DAMAGED[text]
    path.write_bytes(damaged.encode(errors="surrogateescape"))
    with pytest.raises(TableDamaged, match=message) as caught:
        Broker(1, Catalog(), FileStore(path))
    assert str(path) in str(caught.value)
    assert path.read_bytes() == damaged.encode(errors="surrogateescape")


def test_a_file_that_cannot_be_written_stops_nothing_but_grants(tmp_path: Path) -> None:
    notices: list[Notice] = []
    system = System()
    host = system.add(Broker(1, city(), FileStore(tmp_path / "missing" / "broker.json"), notify=notices.append))
    system.run(500)
    assert not broker_of(host).active
    assert isinstance(notices[0], StoreFailed)
    assert "missing" in notices[0].problem


def test_uid_0_is_refused() -> None:
    with pytest.raises(BusError):
        Broker(0, Catalog(), MemoryStore())


# -- hostile frames ----------------------------------------------------------------------------------------------------


class Flood(ControllerListener):
    """A station that repeats some frames, one whenever the one before went through."""

    def __init__(self, bus: SimBus, frames: list[Frame], until_ns: int) -> None:
        self.frames, self.until_ns, self.count = frames, until_ns, 0
        self.controller = Controller(998, self)
        bus.attach(self.controller)
        self.sent(Frame(0), bus.now)

    def sent(self, frame: Frame, now: int) -> None:
        if now < self.until_ns:
            self.count += 1
            self.controller.load(0, self.frames[self.count % len(self.frames)])


@pytest.mark.parametrize(
    "frames",
    [
        [Nibble(15, 0).frame()],
        [Nibble(stage, 0).frame() for stage in range(15, -1, -1)],
        [Nibble(stage, 0xF).frame() for stage in range(16)],
        [GetEtag(9, subject).frame() for subject in range(1, 200)],
        [Restart().frame()],
    ],
    ids=["first stage", "all stages", "stages in disorder", "requests", "restarts"],
)
def test_a_flood_ends_with_its_sender(frames: list[Frame]) -> None:
    """Nodes with numbers are not touched, and those without get theirs within the time-outs after the flood."""
    system, host = serving()
    old = system.station(0x10)
    system.run(20)
    Flood(system.bus, frames, system.bus.now + 300 * MS)
    new = system.station(0x20)
    system.run(300 + (STAGE_TIMEOUT / MS) + 110)
    assert old.node == 1
    assert new.node not in (None, 1)
    assert not old.notices_of(NodeIdConflict)
    assert len(broker_of(host).numbers) <= 126


def test_nibbles_that_make_up_uids_use_numbers_up_for_the_lease_at_most() -> None:
    system, host = serving()
    forge(host, *(Claim(number, 1000 + number) for number in range(1, 127)))
    real = system.station(0x10)
    system.run(LEASE / MS + 1_500)
    assert real.node is not None


def test_forged_claims_for_all_numbers_leave_the_nodes_that_are_there_theirs() -> None:
    system, host = serving()
    stations = [system.station(uid) for uid in (10, 11, 12)]
    system.run(60)
    before = [station.node for station in stations]
    forge(host, *(Claim(number, 2**63 + number) for number in range(1, 127)))
    assert {uid: broker_of(host).numbers[uid] for uid in (10, 11, 12)} == dict(zip((10, 11, 12), before, strict=True))


def test_a_forged_claim_of_a_lower_broker_silences_the_broker_for_three_seconds() -> None:
    system = System()
    host = system.broker(5, catalog=city())
    system.run(40)
    broker = broker_of(host)
    forge(host, Claim(127, 0))  # which is no claim at all
    assert broker.active
    forge(host, Claim(127, 4))
    assert not broker.active
    system.run(BROKER_TIMEOUT / MS + 50)
    assert broker.active


def test_a_forged_heartbeat_does_not_stop_a_broker() -> None:
    system, host = serving()
    for _ in range(200):
        forge(host, Heartbeat(1, 2))
        system.run(1)
    station = system.station(0x10)
    system.run(20)
    assert station.node == 1


def test_a_node_accepts_replies_of_the_broker_only() -> None:
    station = Station(0x10, subjects=[LOOP])
    station.wake(0)
    station.receive(NumberGrant(0x10, 5).frame(), 0)
    for frame in Supply(LOOP, 9999).frames(5):
        for node in (0, 3, 126):
            station.receive(Frame(frame.id & ~(0x7F << 14) | node << 14, frame.data), 1)
    assert not station.notices_of(Bound)


def assault(host: Host, system: System, frames: int, tags: list[int], seed: int) -> None:
    random = Random(seed)
    broker = broker_of(host)
    for number in range(frames):
        band = random.choice((0, 251, 252, 253, 254, random.getrandbits(8)))
        node = random.choice((0, 1, 5, 127, random.getrandbits(7)))
        data = random.choice((random.randbytes(8), random.randbytes(random.randrange(9)), bytes(8), b""))
        frame = Frame((band << 21 | node << 14 | random.choice(tags)) & ID_MASK, data)
        host.call(partial(broker.receive, frame))
        if number % 10 == 0:
            system.run(1)


@pytest.mark.parametrize("frames", [20_000, pytest.param(1_000_000, marks=pytest.mark.slow)])
def test_random_protocol_frames_do_no_harm(frames: int) -> None:
    system, host = serving()
    assault(host, system, frames, list(ProtocolEtag), seed=frames)
    numbers = broker_of(host).numbers
    assert len(set(numbers.values())) == len(numbers) <= 126
    assert set(broker_of(host).channels) <= {"Event", "Loop", "Radar"}
    system.run(LEASE / MS + 4_000)
    station = system.station(0x10)
    system.run(1_000)
    assert station.node is not None
    assert station.notices_of(Configured)


def test_frames_of_events_change_no_table() -> None:
    system, host = serving()
    forge(host, Claim(5, 0x50))
    before = broker_of(host)._tables.text()
    assault(host, system, 20_000, list(range(128, 1 << 14)), seed=1)
    assert broker_of(host)._tables.text() == before
