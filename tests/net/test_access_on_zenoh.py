"""A zenoh router with the access rules of a grants file, over mutual TLS: what users get by their certificates."""

import json
import socket
from collections.abc import Callable, Iterator
from contextlib import ExitStack, closing
from pathlib import Path
from typing import Annotated, Any
from urllib.parse import urlencode

import pytest

from genus import Event, Maybe, Unit, open_bus
from genus.bus import BestEffort, Bus
from genus.errors import BusError
from genus.net import NetLink, read_grants
from tests.net.certificates import Authority, Certificate
from tests.waiting import wait_for

zenoh = pytest.importorskip("zenoh")


class Quay(Event, tagged=("place",)): ...


class WaterMark(Quay):
    level: Maybe[Annotated[float, Unit("m")]] = None


class HighWater(WaterMark): ...


class Freighter(Quay): ...


GRANTS = """
[users.gauge]
publish = ["WaterMark"]

[users.master]
subscribe = ["WaterMark", "exact Freighter"]

[users.pilot]
subscribe = ["Freighter"]

[users.owner]
gateway = true
publish = ["Event"]
subscribe = ["Event"]
"""
USERS = ("gauge", "master", "pilot", "owner", "stranger")


@pytest.fixture(scope="module")
def authority(tmp_path_factory: pytest.TempPathFactory) -> Authority:
    return Authority(tmp_path_factory.mktemp("certificates"))


def config(mode: str, authority: Authority, own: Certificate, port: int, **more: Any) -> Any:
    side = "listen" if mode == "router" else "connect"
    made = zenoh.Config()
    for key, value in {
        "mode": mode,
        "scouting/multicast/enabled": False,
        "timestamping/enabled": True,
        f"{side}/endpoints": [f"tls/127.0.0.1:{port}"],
        "transport/link/tls/root_ca_certificate": str(authority.root),
        "transport/link/tls/enable_mtls": True,
        f"transport/link/tls/{side}_certificate": str(own.certificate),
        f"transport/link/tls/{side}_private_key": str(own.key),
        **more,
    }.items():
        made.insert_json5(key, json.dumps(value))
    return made


@pytest.fixture(scope="module")
def port(authority: Authority, grants_file: Path) -> Iterator[int]:
    rules = read_grants(grants_file, [Quay, WaterMark, HighWater, Freighter]).zenoh_acl("city")
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        number: int = free.getsockname()[1]
    router = zenoh.open(config("router", authority, authority.issue("router"), number, access_control=rules))
    with closing(router):
        yield number


@pytest.fixture(scope="module")
def grants_file(tmp_path_factory: pytest.TempPathFactory) -> Path:
    path = tmp_path_factory.mktemp("grants") / "grants.toml"
    path.write_text(GRANTS)
    return path


@pytest.fixture(scope="module")
def sessions(port: int, authority: Authority) -> Iterator[dict[str, Any]]:
    opened = {user: zenoh.open(config("client", authority, authority.issue(user), port)) for user in USERS}
    yield opened
    for session in opened.values():
        session.close()


class Heard(list[str]):
    """The keys that a subscriber heard."""

    def __call__(self, sample: Any) -> None:
        self.append(str(sample.key_expr))

    def await_key(self, key: str) -> None:
        wait_for(lambda: key in self, f"{key} was not heard")


def publish_until_heard(session: Any, key: str, heard: Heard) -> None:
    """A subscription takes effect some time after it was declared."""

    def is_heard() -> bool:
        session.put(key, b"x")
        return key in heard

    wait_for(is_heard, f"{key} was not heard")


def test_users_publish_and_receive_what_is_granted(sessions: dict[str, Any]) -> None:
    heard = {user: Heard() for user in USERS}
    asked = {
        "master": ("city/Quay/*/WaterMark/**", "city/Quay/*/Freighter"),
        "pilot": ("city/**", "city/Quay/*/WaterMark/**", "city/Quay/*/Freighter/**"),
        "stranger": ("city/**", "city/Quay/*/WaterMark/**", "city/Quay/*/Freighter/**"),
        "owner": ("city/**",),
    }
    for user, patterns in asked.items():
        for pattern in patterns:
            sessions[user].declare_subscriber(pattern, heard[user], allowed_origin=zenoh.Locality.REMOTE)
    publish_until_heard(sessions["owner"], "city/Quay/1/Freighter", heard["pilot"])
    publish_until_heard(sessions["owner"], "city/Quay/1/Freighter", heard["master"])
    publish_until_heard(sessions["gauge"], "city/Quay/1/WaterMark", heard["master"])
    publish_until_heard(sessions["gauge"], "city/Quay/0/WaterMark/HighWater", heard["owner"])
    for user in ("gauge", "pilot", "stranger"):
        sessions[user].put("city/Quay/1/Freighter/Denied", b"x")
        sessions[user].put("city/Denied", b"x")
    for user in ("pilot", "stranger", "master"):
        sessions[user].put("city/Quay/1/WaterMark/Denied", b"x")
    publish_until_heard(sessions["owner"], "city/Quay/1/Freighter/Tug", heard["pilot"])
    publish_until_heard(sessions["gauge"], "city/Quay/0/WaterMark/HighWater", heard["master"])
    for user in ("gauge", "pilot", "stranger", "master"):  # an answer over the same connection, after what was denied
        token = sessions[user].liveliness().declare_token(f"@genus/city/here/{user}")
        if user != "stranger":
            _await_token(sessions["owner"], f"@genus/city/here/{user}")
        token.undeclare()
    assert set(heard["pilot"]) == {"city/Quay/1/Freighter", "city/Quay/1/Freighter/Tug"}
    assert set(heard["master"]) == {"city/Quay/1/Freighter", "city/Quay/1/WaterMark", "city/Quay/0/WaterMark/HighWater"}
    assert set(heard["owner"]) == {"city/Quay/1/WaterMark", "city/Quay/0/WaterMark/HighWater"}
    assert heard["stranger"] == []


def _await_token(session: Any, key: str) -> None:
    seen = Heard()
    subscriber = session.liveliness().declare_subscriber(key, seen, history=True)
    seen.await_key(key)
    subscriber.undeclare()


def test_late_subscribers_get_what_publishers_cached(sessions: dict[str, Any]) -> None:
    """The caches of advanced publishers have keys with a suffix of their own, which the rules name."""
    ext: Any = pytest.importorskip("zenoh.ext")
    gauge = ext.declare_advanced_publisher(
        sessions["gauge"], "city/Quay/0/WaterMark", cache=ext.CacheConfig(max_samples=10), publisher_detection=True
    )
    gauge.put(b"first")
    heard = {user: Heard() for user in ("master", "pilot")}
    for user in ("pilot", "master"):
        ext.declare_advanced_subscriber(
            sessions[user],
            "city/Quay/*/WaterMark/**",
            heard[user],
            history=ext.HistoryConfig(detect_late_publishers=True),
            recovery=ext.RecoveryConfig(heartbeat=True),
        )
    heard["master"].await_key("city/Quay/0/WaterMark")
    assert heard["pilot"] == []
    gauge.undeclare()


def test_everyone_sees_the_tokens_of_the_control_keys(sessions: dict[str, Any]) -> None:
    seen = Heard()
    sessions["gauge"].liveliness().declare_subscriber("@genus/city/want/**", seen, history=True)
    token = sessions["pilot"].liveliness().declare_token("@genus/city/want/0011223344556677/x/U2hpcB/0")
    seen.await_key("@genus/city/want/0011223344556677/x/U2hpcB/0")
    token.undeclare()


def test_only_gateways_may_say_that_they_are_gateways(sessions: dict[str, Any]) -> None:
    seen, heard = Heard(), Heard()
    sessions["gauge"].liveliness().declare_subscriber("@genus/city/gate/**", seen, history=True)
    sessions["gauge"].declare_subscriber("@genus/city/gate/**", heard)
    publish_until_heard(sessions["owner"], "@genus/city/gate", heard)
    tokens = [
        sessions["pilot"].liveliness().declare_token("@genus/city/gate/forged/x"),
        sessions["owner"].liveliness().declare_token("@genus/city/gate/true/x"),
        sessions["pilot"].liveliness().declare_token("@genus/city/here/pilot-gate"),
    ]
    sessions["pilot"].put("@genus/city/gate/forged", b"x")
    _await_token(sessions["owner"], "@genus/city/here/pilot-gate")  # comes after what was denied
    seen.await_key("@genus/city/gate/true/x")
    publish_until_heard(sessions["owner"], "@genus/city/gate/true", heard)
    assert set(seen) == {"@genus/city/gate/true/x"}
    assert set(heard) == {"@genus/city/gate", "@genus/city/gate/true"}
    for token in tokens:
        token.undeclare()


def test_a_stranger_sees_no_tokens(sessions: dict[str, Any]) -> None:
    seen, others = Heard(), Heard()
    sessions["stranger"].liveliness().declare_subscriber("@genus/city/here/**", seen, history=True)
    sessions["master"].liveliness().declare_subscriber("@genus/city/here/**", others, history=True)
    token = sessions["gauge"].liveliness().declare_token("@genus/city/here/0011223344556677/x")
    others.await_key("@genus/city/here/0011223344556677/x")
    assert seen == []
    token.undeclare()


# -- typed buses -------------------------------------------------------------------------------------------------------


@pytest.fixture
def opened(port: int, authority: Authority, grants_file: Path) -> Iterator[Callable[[str], Bus]]:
    """Opens the bus of a user, by its address; it knows the grants."""
    with ExitStack() as stack:

        def open_as(user: str) -> Bus:
            own = authority.issue(user)
            options = {"connect": f"tls/127.0.0.1:{port}", "ca": authority.root, "cert": own.certificate}
            query = urlencode({**options, "key": own.key, "reliable": 1, "grants": grants_file, "user": user})
            return stack.enter_context(open_bus(f"zenoh:city?{query}"))

        yield open_as


def test_typed_buses_work_under_the_access_rules(opened: Callable[[str], Bus]) -> None:
    """Events, kept events for those who come later, interest and participants: all that a link does is allowed."""
    gauge, master = opened("gauge"), opened("master")
    assert isinstance(gauge.link, NetLink)
    kept = gauge.channel(HighWater, BestEffort(), keep=True)
    kept.announce()
    kept.publish(HighWater(source="A8"))
    heard: list[Event] = []
    master.collection(WaterMark).subscribe(heard.append)
    wait_for(lambda: heard == [HighWater(source="A8")])
    wait_for(lambda: gauge.link.wanted_by(WaterMark()))  # type: ignore[union-attr]
    gauge.publish(WaterMark(place="A9", level=1.5))
    wait_for(lambda: len(heard) == 2)
    wait_for(lambda: len(gauge.link.participants()) == 1)  # type: ignore[union-attr]
    assert heard == [HighWater(source="A8"), WaterMark(place="A9", level=1.5)]


def test_a_typed_bus_says_what_the_router_would_keep_silent_about(opened: Callable[[str], Bus]) -> None:
    pilot = opened("pilot")
    pilot.collection(Freighter).subscribe(print)
    with pytest.raises(BusError, match=r"pilot may not subscribe to WaterMark: .* grants Freighter"):
        pilot.collection(WaterMark).subscribe(print)
    with pytest.raises(BusError, match=r"pilot may not publish Freighter: .* grants nothing"):
        pilot.publish(Freighter())


def test_a_participant_that_keeps_what_it_may_not_publish_is_not_heard(
    opened: Callable[[str], Bus], sessions: dict[str, Any]
) -> None:
    """It may answer questions for kept events, but its answers do not pass."""
    master, owner = opened("master"), opened("owner")
    key = "@genus/city/last/Quay/0/WaterMark/=A8"
    forged = sessions["pilot"].declare_queryable("@genus/city/last/**", lambda query: query.reply(key, b"forged"))
    heard: list[Event] = []
    kept = owner.channel(WaterMark, BestEffort(), keep=True)
    kept.announce()
    kept.publish(WaterMark(source="A9"))
    master.collection(WaterMark).subscribe(heard.append)
    wait_for(lambda: heard)
    assert heard == [WaterMark(source="A9")]
    assert not [name for name in master.traffic().link if name.startswith("rejected")]
    forged.undeclare()


def test_without_a_certificate_of_the_authority_there_is_no_connection(
    port: int, authority: Authority, tmp_path: Path
) -> None:
    forged = Authority(tmp_path, "forger").issue("gauge")
    with pytest.raises(zenoh.ZError):
        zenoh.open(config("client", authority, forged, port)).close()
