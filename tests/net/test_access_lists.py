"""Access lists of routers and brokers: they allow what the grants allow, no more and no less."""

from collections.abc import Callable
from itertools import combinations
from pathlib import Path
from typing import Annotated, Any

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st

from genus import Event, Kind, Maybe, Subscription, Unit, all_of
from genus.bus import BestEffort, Bus
from genus.errors import GrantsError
from genus.model import is_event_type
from genus.net import NetLink, Sending, read_grants
from genus.net._grants import control_patterns, kept_pattern, new_pattern
from genus.net._grants_file import parse_grants
from genus.net.types import Grants
from genus.targets import topics
from genus.targets.topics import MQTT, ZENOH, Dialect, EventKeys
from genus.testing import run_command
from tests.examples import examples
from tests.net.memory_network import Faults, MemoryNetwork, MemorySender, MemoryTransport

ROOT = Path(__file__).parents[2]
GOLDEN = Path(__file__).parent / "golden"


class Wet(Kind): ...


class Salty(Wet): ...


class Lonely(Kind): ...


class Water(Event, tagged=("place", "depth")):
    depth: Maybe[float] = None


class Sea(Water, Salty): ...


class Bay(Sea):
    name: Maybe[str] = None


class Lake(Water, Wet): ...


class Rain(Event, Wet): ...


class Spray(Event, Salty): ...


class Foam(Event, Salty): ...


class Gust(Event):
    speed: float


TYPES = (Wet, Salty, Lonely, Water, Sea, Bay, Lake, Rain, Spray, Foam, Gust)
EVENTS = [cls for cls in (*TYPES, Event) if is_event_type(cls)]
NAMES = st.sampled_from([cls.__name__ for cls in (*TYPES, Event)])
GRANTS = st.lists(
    st.one_of(NAMES, NAMES.map("exact {}".format), st.sampled_from(["Water & Salty", "Wet & Lonely", "Sea & Wet"])),
    max_size=4,
)


@st.composite
def subscriptions(draw: st.DrawFn) -> Subscription[Any]:
    cls = draw(st.sampled_from((*TYPES, Event)))
    has = draw(st.sampled_from([(), ("place",), ("time",)]))
    if draw(st.booleans()):
        return Subscription(cls, exact=draw(st.booleans()), has=has)
    others = draw(st.lists(st.sampled_from((Wet, Salty, Lonely)), max_size=2))
    return Subscription(all_of(cls, *others), has=has)


def granted(texts: list[str]) -> Grants:
    return parse_grants({"users": {"ann": {"publish": texts, "subscribe": texts}}}, "grants", TYPES)


def is_included(dialect: Dialect, wide: tuple[str, ...], narrow: str) -> bool:
    """By our own comparison, and on zenoh by its own too."""
    ours = any(dialect.includes(pattern, narrow) for pattern in wide)
    if dialect is ZENOH:
        zenoh = pytest.importorskip("zenoh")
        asked = zenoh.KeyExpr(narrow)
        assert any(zenoh.KeyExpr(pattern).includes(asked) for pattern in wide) is ours
    return ours


@pytest.mark.slow
@pytest.mark.parametrize("dialect", [ZENOH, MQTT], ids=lambda dialect: dialect.name)
@examples(600)
@given(texts=GRANTS, asked=subscriptions())
def test_a_subscription_is_granted_if_and_only_if_the_list_includes_its_patterns(
    dialect: Dialect, texts: list[str], asked: Subscription[Any]
) -> None:
    grants = granted(texts)
    keys = grants.patterns(dialect, "city").get("ann")
    wide = keys.subscribe if keys else ()
    patterns = topics.compile(asked, dialect, "city").patterns
    if patterns:
        expected = all(is_included(dialect, wide, pattern) for pattern in patterns)
        assert bool(grants.may_subscribe("ann", asked)) is expected


ALL_GRANTS = [f"{exact}{cls.__name__}" for cls in (*TYPES, Event) for exact in ("", "exact ")] + ["Water & Salty"]
ALL_SUBSCRIPTIONS = [
    *(Subscription(cls, exact=exact) for cls in (*TYPES, Event) for exact in (False, True)),
    *(Subscription(all_of(cls, kind)) for cls in (*TYPES, Event) for kind in (Wet, Salty, Lonely)),
]


@pytest.mark.slow
@pytest.mark.parametrize("dialect", [ZENOH, MQTT], ids=lambda dialect: dialect.name)
@pytest.mark.parametrize(("most", "every"), [(1, 4), pytest.param(2, 1, marks=pytest.mark.slow)])
def test_all_small_sets_of_grants_and_all_subscriptions(dialect: Dialect, most: int, every: int) -> None:
    """All sets of at most two grants; in the fast suite, single ones of every fourth."""
    compiled = [(asked, topics.compile(asked, dialect, "city").patterns) for asked in ALL_SUBSCRIPTIONS]
    for texts in (list(some) for size in range(most + 1) for some in combinations(ALL_GRANTS[::every], size)):
        grants = granted(texts)
        keys = grants.patterns(dialect, "city").get("ann")
        wide = keys.subscribe if keys else ()
        for asked, patterns in compiled:
            if patterns:
                expected = all(is_included(dialect, wide, pattern) for pattern in patterns)
                assert bool(grants.may_subscribe("ann", asked)) is expected, (texts, str(asked))


@pytest.mark.slow
@pytest.mark.parametrize("dialect", [ZENOH, MQTT], ids=lambda dialect: dialect.name)
@examples(300)
@given(texts=GRANTS, cls=st.sampled_from(EVENTS))
def test_a_class_may_be_published_if_and_only_if_the_list_has_its_keys(
    dialect: Dialect, texts: list[str], cls: type[Event]
) -> None:
    grants = granted(texts)
    keys = grants.patterns(dialect, "city").get("ann")
    wide = keys.publish if keys else ()
    allowed = bool(grants.may_publish("ann", cls))
    for key in EventKeys(cls, dialect, "city").keys:
        assert any(dialect.matches(pattern, key) for pattern in wide) is allowed
        kept = f"@genus/city/last/{key.partition('/')[2]}/=7"
        assert any(dialect.matches(kept_pattern(dialect, "city", pattern), kept) for pattern in wide) is allowed


@pytest.mark.parametrize("dialect", [ZENOH, MQTT], ids=lambda dialect: dialect.name)
def test_control_keys_are_no_events_and_the_other_way_round(dialect: Dialect) -> None:
    """A participant that may nothing but take part sees no event, and wildcards of events no control key."""
    control = control_patterns(dialect, "city")
    keys = granted(["Event"]).patterns(dialect, "city")["ann"]
    for key in EventKeys(Sea, dialect, "city").keys:
        kept = f"@genus/city/last/{key.partition('/')[2]}/=7"
        assert not any(dialect.matches(pattern, each) for pattern in control for each in (key, kept))
    for what in ("here/0011223344556677/x", "want/a/b/c/0", "ping"):
        assert any(dialect.matches(pattern, f"@genus/city/{what}") for pattern in control)
        assert not any(dialect.matches(pattern, f"@genus/city/{what}") for pattern in keys.subscribe)


class Fluid(Kind): ...


class Gauge(Event, Fluid):
    flow: Maybe[Annotated[float, Unit("l/s")]] = None


class Spied(MemoryTransport):
    """Remembers all keys and patterns that it is used with."""

    def __init__(self, network: MemoryNetwork, used: set[str]) -> None:
        super().__init__(network)
        self.used = used

    def sender(self, key: str, sending: Sending) -> MemorySender:
        self.used.add(key)
        return super().sender(key, sending)

    def subscribe(self, pattern: str, *, kept: bool = False, group: str | None = None) -> Callable[[], None]:
        self.used.add(pattern)
        return super().subscribe(pattern, kept=kept)

    def declare(self, token: str) -> Callable[[], None]:
        self.used.add(token)
        return super().declare(token)

    def watch(self, pattern: str) -> Callable[[], None]:
        self.used.add(pattern)
        return super().watch(pattern)


@pytest.mark.parametrize("dialect", [ZENOH, MQTT], ids=lambda dialect: dialect.name)
def test_all_that_a_link_uses_is_in_the_lists(dialect: Dialect) -> None:
    """A control key that is new in the link, and missing in the list, would be denied in silence."""
    used: set[str] = set()
    network, now = MemoryNetwork(dialect), [100.0]
    made = (NetLink(Spied(network, used), "city", medium="memory", runs=False, now=lambda: now[0]) for _ in range(2))
    with Bus(next(made)) as one, Bus(next(made)) as other:
        other.subscribe(Subscription(Gauge, where="flow > 1"), lambda event: None)
        other.subscribe(Fluid, lambda event: None)
        kept = one.channel(Gauge, BestEffort(), keep=True)
        kept.announce()
        kept.publish(Gauge(flow=2.0))
        one.publish(Gauge(flow=2.0))
        network.faults = Faults(lost=1.0)
        one.publish(Gauge(flow=3.0))
        network.faults = Faults()
        for bus in (one, other):
            assert isinstance(bus.link, NetLink)
            bus.link.show("gate", "test")
            for _ in range(100):
                now[0] += 0.1
                bus.link.tick()
                network.deliver()
    assert {"lost", "types", "new", "want", "gate"} <= {key.split("/")[2] for key in used if key[0] == "@"}, (
        "it should be used"
    )
    rules = [*control_patterns(dialect, "city"), dialect.join(["@genus", "city", "gate", dialect.rest])]
    granted_keys = granted(["Event"]).patterns(dialect, "city")["ann"].subscribe
    rules += [*granted_keys, *(kept_pattern(dialect, "city", pattern) for pattern in granted_keys)]
    rules += [new_pattern(dialect, "city", pattern) for pattern in granted_keys]
    assert {key for key in used if not any(dialect.includes(rule, key) for rule in rules)} == set()


def test_a_user_without_a_grant_in_the_realm_is_left_out(tmp_path: Path) -> None:
    (tmp_path / "g").write_text('[users.ann]\nsubscribe = ["Sea"]\nrealms = ["site-*"]\n[users.bob]\npublish = ["Sea"]')
    grants = read_grants(tmp_path / "g", TYPES)
    assert [one["id"] for one in grants.zenoh_acl("city")["subjects"]] == ["bob"]
    assert "user ann" not in grants.mosquitto_acl("city")
    assert "user ann" in grants.mosquitto_acl("site-1")


@pytest.mark.parametrize("realm", ["", "a/b", "**", "#", "a b", "@genus", "$SYS"])
def test_a_realm_is_one_plain_word(realm: str) -> None:
    with pytest.raises(GrantsError, match="cannot be a realm: use letters, digits, _ and -"):
        granted(["Sea"]).mosquitto_acl(realm)


# -- golden files and the command --------------------------------------------------------------------------------------

GIVEN = (str(ROOT / "examples" / "grants.toml"), "-t", str(ROOT / "examples" / "traffic.py"))


@pytest.mark.parametrize(("form", "file"), [("zenoh", "access.json"), ("mosquitto", "acl.txt")])
def test_the_lists_of_the_example(form: str, file: str) -> None:
    """`genus grants FORM examples/grants.toml -t examples/traffic.py --realm city` writes the golden files again."""
    done = run_command("grants", form, *GIVEN, "--realm", "city")
    assert (done.returncode, done.stderr) == (0, "")
    assert done.stdout == (GOLDEN / file).read_text()


def test_a_router_may_know_users_by_name() -> None:
    done = run_command("grants", "zenoh", *GIVEN, "--by", "user", "--realm", "city")
    subjects = msgspec.json.decode(done.stdout)["access_control"]["subjects"]
    assert subjects[0] == {"id": "gate-7", "usernames": ["gate-7"]}


def test_check_shows_what_is_granted() -> None:
    done = run_command("grants", "check", *GIVEN, "--json", "--realm", "elsewhere")
    assert msgspec.json.decode(done.stdout)["users"] == {
        "control-room": {"publish": ["Lamp", "Gate"], "subscribe": ["Roadside"], "gateway": False},
        "gate-7": {"publish": [], "subscribe": [], "gateway": False},
        "harbour": {"publish": ["Event"], "subscribe": ["Event"], "gateway": True},
        "recorder": {"publish": [], "subscribe": ["Event"], "gateway": False},
    }
    table = run_command("grants", "check", *GIVEN).stdout
    assert "gate-7        Gate, Loop   exact Gate" in table


@pytest.mark.parametrize(
    ("words", "status", "said"),
    [
        (("--user", "gate-7", "--publish", "ConfidentLoop"), 0, "gate-7 may publish ConfidentLoop: Loop\n"),
        (("--user", "gate-7", "--publish", "Lamp"), 1, "gate-7 may not publish Lamp: "),
        (("--user", "control-room", "--subscribe", "Loop where lane > 1"), 0, "may subscribe to Loop where lane > 1: "),
        (("--user", "gate-7", "--subscribe", "Loop"), 1, "gate-7 may not subscribe to Loop: "),
        (
            (
                "--user",
                "gate-8",
            ),
            1,
            "no user 'gate-8'; did you mean 'gate-7'?",
        ),
        (("--publish", "Lamp"), 2, "--subscribe and --publish go with --user"),
    ],
)
def test_check_answers_questions(words: tuple[str, ...], status: int, said: str) -> None:
    done = run_command("grants", "check", *GIVEN, *words)
    assert done.returncode == status
    assert said in done.stdout + done.stderr
    answer = run_command("grants", "check", *GIVEN, *words, "--json")
    assert (answer.returncode, answer.stderr) == (status, done.stderr)
    if done.stdout:
        (found,) = msgspec.json.decode(answer.stdout)["answers"]
        assert (found["granted"], "reason" in found) == (status == 0, status == 1)
        assert f"--{found['action']}" in words


def test_types_come_from_modules_or_a_catalog(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("GENUS_TYPES", raising=False)
    path = str(tmp_path / "city.json")
    assert run_command("catalog", "register", path, GIVEN[2]).returncode == 0
    done = run_command("grants", "mosquitto", GIVEN[0], "--catalog", path, "--realm", "city")
    assert done.stdout == (GOLDEN / "acl.txt").read_text()
    assert "say which types there are: --types" in run_command("grants", "mosquitto", GIVEN[0]).stderr
