"""Who may publish and subscribe what, by a grants file; and what is wrong with a file."""

from pathlib import Path
from typing import Any

import pytest

from genus import Catalog, Event, Kind, Maybe, Subscription, all_of
from genus.bus import Bus
from genus.errors import BusError, GrantsError
from genus.net import Origin, read_grants
from genus.net._grants_file import take_permit
from genus.net._link.netlink import NetLink
from genus.net.types import Allowed, Arrival, Grants, Interest, Refusal
from tests.net.memory_network import MemoryNetwork


class Roadside(Kind): ...


class Signal(Kind): ...


class Edge(Event, tagged=("place",)):
    lane: Maybe[int] = None


class Loop(Edge, Roadside):
    speed: Maybe[float] = None


class Camera(Loop, Signal):
    plate: Maybe[str] = None


class Radar(Edge, Roadside): ...


class Lamp(Event, Signal): ...


class Order(Event):
    text: str


TYPES = (Roadside, Signal, Edge, Loop, Camera, Radar, Lamp, Order)
FILE = """
[roles.sensor]
publish = ["Roadside"]
subscribe = ["Order"]

[roles.viewer]
subscribe = ["Edge"]
realms = ["site-*"]

[users.gate-7]
roles = ["sensor"]

[users."control room"]
publish = ["Order"]
subscribe = ["Event"]

[users.ann]
roles = ["viewer", "sensor"]
publish = ["exact Loop"]
realms = ["site-1", "city"]

[users.bob]
subscribe = ["Camera", "Loop & Signal", "exact Radar"]

[users.nobody]
"""


@pytest.fixture
def path(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.chdir(tmp_path)
    Path("grants.toml").write_text(FILE)
    return Path("grants.toml")


@pytest.fixture
def grants(path: Path) -> Grants:
    return read_grants(path, TYPES)


@pytest.mark.parametrize(
    ("who", "cls", "granted"),
    [
        ("gate-7", Loop, True),
        ("gate-7", Camera, True),
        ("gate-7", Edge, False),
        ("gate-7", Order, False),
        ("control room", Order, True),
        ("nobody", Order, False),
        ("bob", Camera, False),
    ],
)
def test_a_grant_to_publish_holds_for_the_types_below(
    grants: Grants, who: str, cls: type[Event], granted: bool
) -> None:
    assert isinstance(grants.may_publish(who, cls), Allowed if granted else Refusal)
    assert bool(grants.may_publish(who, cls)) is granted


@pytest.mark.parametrize(
    ("who", "asked", "granted"),
    [
        ("control room", "Event", True),
        ("control room", "Roadside", True),
        ("control room", "Loop has place where speed > 30", True),
        ("gate-7", "Order where text == 'stop'", True),
        ("gate-7", "Loop", False),
        ("bob", "Camera", True),
        ("bob", "exact Camera", True),
        ("bob", "Camera & Roadside", True),
        ("bob", "Loop & Signal", True),
        ("bob", "Loop", False),
        ("bob", "Roadside", False),
        ("bob", "exact Radar", True),
        ("bob", "Radar", False),
        ("bob", "Signal", False),
        ("nobody", "Event", False),
    ],
)
def test_a_subscription_is_allowed_if_all_that_it_can_match_is_granted(
    grants: Grants, who: str, asked: str, granted: bool
) -> None:
    assert bool(grants.may_subscribe(who, Subscription.parse(asked, [*TYPES, Event]))) is granted


@pytest.mark.parametrize(
    ("who", "asked", "missing", "allowed", "reason"),
    [
        (
            "bob",
            "Roadside",
            ("Loop", "Radar"),
            ("Camera",),
            "bob may not subscribe to Roadside: not granted by grants.toml are Loop, Radar; of what it asks, Camera "
            "would be allowed",
        ),
        (
            "gate-7",
            "Loop where lane > 1",
            ("Loop",),
            (),
            "gate-7 may not subscribe to Loop: grants.toml grants Order",
        ),
        ("nobody", "Order", ("Order",), (), "nobody may not subscribe to Order: grants.toml grants nothing"),
        ("gate-8", "Order", (), (), "grants.toml has no user 'gate-8'; did you mean 'gate-7'?"),
        (
            "gate-7",
            "Event",
            ("Event",),
            ("Order",),
            "gate-7 may not subscribe to Event: grants.toml grants Order; of what it asks, Order would be allowed",
        ),
    ],
)
def test_a_refusal_says_what_is_missing_and_what_would_be_allowed(
    grants: Grants, who: str, asked: str, missing: tuple[str, ...], allowed: tuple[str, ...], reason: str
) -> None:
    answer = grants.may_subscribe(who, Subscription.parse(asked, [*TYPES, Event]))
    assert answer == Refusal(reason, missing, allowed)


def test_what_allows_is_named(grants: Grants) -> None:
    answer = grants.may_publish("gate-7", Camera)
    assert isinstance(answer, Allowed)
    assert [str(grant) for grant in answer.by] == ["Roadside"]


def test_a_kind_without_types_is_allowed_only_if_it_is_granted_itself(tmp_path: Path) -> None:
    """Types may be declared later, and none of them may slip in."""

    class Weather(Kind): ...

    (tmp_path / "g").write_text('[users.ann]\nsubscribe = ["Weather"]\n[users.bob]\nsubscribe = ["Edge"]')
    grants = read_grants(tmp_path / "g", [*TYPES, Weather])
    assert grants.may_subscribe("ann", Subscription(Weather))
    assert grants.may_subscribe("ann", Subscription(all_of(Edge, Weather)))
    assert not grants.may_subscribe("bob", Subscription(Weather))
    assert grants.may_subscribe("bob", Subscription(all_of(Edge, Weather)))


def test_an_exact_grant_of_a_pure_class_is_that_of_its_kind(tmp_path: Path) -> None:
    """As an exact subscription is."""
    (tmp_path / "g").write_text('[users.ann]\nsubscribe = ["exact Signal"]\npublish = ["exact Lamp"]')
    grants = read_grants(tmp_path / "g", TYPES)
    assert grants.may_subscribe("ann", Subscription(Lamp, exact=True))
    assert grants.may_publish("ann", Lamp)
    assert not grants.may_subscribe("ann", Subscription(Lamp))
    assert not grants.may_subscribe("ann", Subscription(Camera, exact=True))


def test_an_exact_subscription_to_a_pure_class_needs_all_pure_classes_of_its_kind(tmp_path: Path) -> None:
    class Siren(Event, Signal): ...

    (tmp_path / "g").write_text('[users.ann]\nsubscribe = ["Lamp"]\n[users.bob]\nsubscribe = ["Lamp", "Siren"]')
    grants = read_grants(tmp_path / "g", [*TYPES, Siren])
    assert grants.may_subscribe("ann", Subscription(Lamp))
    assert not grants.may_subscribe("ann", Subscription(Lamp, exact=True)), "it would match a Siren"
    assert grants.may_subscribe("bob", Subscription(Lamp, exact=True))


def test_realms_limit_a_role_and_a_user(grants: Grants) -> None:
    """A user's realms limit its roles too: both must match."""
    edges, orders = Subscription(Edge), Subscription(Order)
    for realm, expected in {"site-1": (True, True), "city": (False, True), "site-2": (False, False)}.items():
        within = grants.within(realm)
        assert (bool(within.may_subscribe("ann", edges)), bool(within.may_subscribe("ann", orders))) == expected, realm
    assert grants.within("site-2").may_publish("gate-7", Loop)


def test_a_link_is_told_by_an_error(grants: Grants) -> None:
    permit = grants.permit("bob", "city")
    permit.check_subscribe(Subscription(Camera))
    with pytest.raises(BusError, match=r"bob may not subscribe to Order: grants.toml grants Camera, Loop & Signal, ex"):
        permit.check_subscribe(Subscription(Order))
    with pytest.raises(BusError, match=r"bob may not publish Order: grants.toml grants nothing"):
        permit.check_publish(Order)
    with pytest.raises(GrantsError, match=r"grants.toml: no user 'bab'; did you mean 'bob'\? known are ann, bob"):
        grants.permit("bab", "city")


class NumberPlate(Event): ...  # names that no other test has: a link knows types by their names


class Forbidden(Event): ...


def test_a_bus_says_at_the_call_what_is_refused(path: Path) -> None:
    """Nothing is left of the subscription, and events that may not be published do not leave the process."""
    path.write_text('[users.bob]\nsubscribe = ["NumberPlate"]')
    permit = read_grants(path).permit("bob", "city")
    network = MemoryNetwork()

    def bus(**may: Any) -> Bus:
        return Bus(NetLink(network.transport(), "city", medium="memory", runs=False, **may))

    heard: list[Event] = []
    with bus(permit=permit) as bobs, bus() as others:
        others.collection(Event).subscribe(heard.append)
        bobs.collection(NumberPlate).subscribe(heard.append)
        for cls in (Forbidden, Event):
            with pytest.raises(BusError, match=f"bob may not subscribe to {cls.__name__}: "):
                bobs.collection(cls).subscribe(heard.append)
        with pytest.raises(BusError, match="bob may not publish Forbidden: "):
            bobs.publish(Forbidden())
        with pytest.raises(BusError, match="bob may not publish Forbidden: "):
            bobs.channel(Forbidden).announce()
        network.deliver()
        assert list(bobs.traffic().subscriptions) == ["NumberPlate"]
        assert heard == []
        others.publish(Forbidden())
        others.publish(NumberPlate())
        network.deliver()
        assert heard == [Forbidden(), NumberPlate(), NumberPlate()]


class Guarded(Kind): ...


class GuardedDoor(Event, Guarded): ...


def test_what_nobody_can_be_told_is_counted(path: Path, caplog: pytest.LogCaptureFixture) -> None:
    """What gateways want and forward, and types that a kind gets later: the rest goes on."""
    path.write_text('[users.bob]\nsubscribe = ["GuardedDoor"]\npublish = ["GuardedDoor"]')
    permit = read_grants(path).permit("bob", "city")
    network = MemoryNetwork()
    now = [100.0]
    link = NetLink(
        network.transport(),
        "city",
        medium="memory",
        runs=False,
        now=lambda: now[0],
        permit=permit,
    )
    heard: list[Event] = []
    with Bus(link) as bus, Bus(NetLink(network.transport(), "city", medium="memory", runs=False)) as others:
        bus.subscribe("Guarded", heard.append)
        others.collection(Event).subscribe(heard.append)

        class GuardedGate(Event, Guarded): ...

        now[0] += 10
        link.tick()
        refused = f"bob may not subscribe to Guarded: not granted by {path} are GuardedGate"
        (reason,) = (name for name in bus.traffic().link if name.startswith(f"rejected: {refused}"))
        assert bus.traffic().link[reason] == 1
        assert refused in caplog.text
        link.relay(lambda arrival: None).set_interest([Interest("00" * 8, "00" * 8, Subscription(Forbidden), 1)])
        link.forward(Arrival(Forbidden(), Origin(bytes(8), 1, 1)))
        link.forward(Arrival(GuardedDoor(), Origin(bytes(8), 1, 1)))
        network.deliver()
        assert heard == [GuardedDoor(), GuardedDoor()]
        what = {name.partition(": ")[2].partition(":")[0] for name in bus.traffic().link if name.startswith("rejected")}
        assert what == {
            "bob may not subscribe to Guarded",
            "bob may not subscribe to Forbidden",
            "bob may not publish Forbidden",
        }


def test_an_address_names_the_file_and_the_user(path: Path) -> None:
    permit = take_permit(str(path), "bob", "city")
    assert permit is not None
    assert permit.who == "bob"
    assert take_permit(None, None, "city") is None
    for grants, user, problem in (
        (str(path), None, r"grants=grants.toml needs user=NAME"),
        (str(path), "bab", r"grants.toml: no user 'bab'; did you mean 'bob'\?"),
        (None, "bob", "user=bob goes with grants=FILE"),
        ("nowhere", "bob", "cannot read nowhere: No such file"),
    ):
        with pytest.raises(BusError, match=problem):
            take_permit(grants, user, "city")


def test_names_are_enough_to_decide(path: Path) -> None:
    """A link reads the file before all types are declared."""
    path.write_text('[users.ann]\nsubscribe = ["Roadside", "NotHere"]')
    grants = read_grants(path)
    assert grants.may_subscribe("ann", Subscription(Loop))
    assert not grants.may_subscribe("ann", Subscription(Edge))
    with pytest.raises(GrantsError, match=r"grants.toml was read without types: give them to read_grants"):
        grants.zenoh_acl("city")


def test_types_may_come_from_a_catalog(path: Path) -> None:
    catalog = Catalog()
    catalog.register(*TYPES)
    assert read_grants(path, catalog).may_publish("gate-7", Loop)
    with pytest.raises(GrantsError, match="no type is called 'Roadside'"):
        read_grants(path, Catalog())


@pytest.mark.parametrize(
    ("text", "problem"),
    [
        ("[users.ann", "grants.toml: not TOML: "),
        ("", r"grants.toml: names no user; write \[users.NAME\]"),
        ("[user.ann]", r"grants.toml: unknown key 'user'; did you mean 'users'\? known are roles, users"),
        ('[users.ann]\npublsh = ["Loop"]', r"\[users.ann\]: unknown key 'publsh'; did you mean 'publish'\?"),
        ('[roles.a]\nroles = ["b"]\n[users.ann]', r"\[roles.a\]: unknown key 'roles'"),
        ('[users.ann]\nroles = ["b"]', r"\[users.ann\]: no role is called 'b'; known are none"),
        ('[users.ann]\npublish = ["Lop"]', r"\[users.ann\]: publish: no type is called 'Lop'; did you mean 'Loop'\?"),
        ('[users.ann]\npublish = "Loop"', r"\[users.ann\]: publish must be a list of texts, not 'Loop'"),
        ("[users.ann]\npublish = [3]", r"publish must be a list of texts, not \[3\]"),
        (
            '[users.ann]\npublish = ["Loop has place"]',
            r"'Loop has place' is not a type; write Loop, exact Loop, or Loop &",
        ),
        ('[users.ann]\npublish = ["exact Loop & Signal"]', "exact takes one type"),
        ('[users.ann]\npublish = ["Loop & Lamp"]', "no event can be all of Loop & Lamp"),
        ("[users]\nann = 3", r"\[users.ann\]: must be a table, not 3"),
        ('[users."a\\nb"]', "cannot be the name of a user"),
        ('[users." a"]', "cannot be the name of a user"),
        ("a = " + "[" * 5000, "grants.toml: not TOML: "),
    ],
)
def test_what_is_wrong_with_a_file_is_named(path: Path, text: str, problem: str) -> None:
    path.write_text(text)
    with pytest.raises(GrantsError, match=problem):
        read_grants(path, TYPES)


def test_a_file_that_cannot_be_read(path: Path) -> None:
    with pytest.raises(GrantsError, match=r"cannot read nowhere.toml: No such file"):
        read_grants("nowhere.toml", TYPES)
    path.write_bytes(b"\xff\xfe")
    with pytest.raises(GrantsError, match=r"grants.toml: not TOML"):
        read_grants(path, TYPES)


def test_who_may_be_a_gateway_is_said_by_roles_and_users_and_holds_in_their_realms(tmp_path: Path) -> None:
    (tmp_path / "g").write_text(
        '[roles.gate]\ngateway = true\n[users.ann]\nroles = ["gate"]\nrealms = ["site-*"]\n'
        "[users.bob]\ngateway = false\n[users.cat]\ngateway = true\n"
    )
    grants = read_grants(tmp_path / "g", [])
    found = {
        (user, realm): bool(grants.within(realm).may_be_gateway(user))
        for user in ("ann", "bob", "cat", "dan")
        for realm in ("city", "site-1")
    }
    assert {key for key, may in found.items() if may} == {("ann", "site-1"), ("cat", "city"), ("cat", "site-1")}
    assert "topic readwrite @genus/city/gate/#" in grants.mosquitto_acl("city")
    (tmp_path / "g").write_text("[users.ann]\ngateway = 1\n")
    with pytest.raises(GrantsError, match=r"\[users.ann\]: gateway must be true or false, not 1"):
        read_grants(tmp_path / "g")
