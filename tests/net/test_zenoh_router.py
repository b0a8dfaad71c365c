"""zenoh with a router: it is named, waited for, killed, and comes back."""

import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

from genus.errors import BusError
from genus.net._transport import Sending
from genus.net._zenoh_transport import ZenohSender
from tests.waiting import wait_for

pytest.importorskip("zenoh", reason="zenoh comes with genus[zenoh]")

from tests.net.certificates import Authority
from tests.net.zenoh_network import Collector, free_port, participant, put_until, router

TICK_S = 0.004


class Ticker:
    """State: a thread that sends numbers without a pause."""

    def __init__(self, *senders: ZenohSender) -> None:
        self.sent = 0
        self._senders = senders
        self._stop = threading.Event()
        self._thread = threading.Thread(target=self._run)
        self._thread.start()

    def _run(self) -> None:
        while not self._stop.wait(TICK_S):
            for sender in self._senders:
                sender.put(b"%d" % self.sent, b"envelope")
            self.sent += 1

    def stop(self) -> int:
        """Stop; returns the last number that was sent."""
        self._stop.set()
        self._thread.join()
        return self.sent - 1


@contextmanager
def ticking(*senders: ZenohSender) -> Iterator[Ticker]:
    ticker = Ticker(*senders)
    try:
        yield ticker
    finally:
        ticker.stop()


def numbers(collector: Collector, key: str) -> list[int]:
    return [int(payload) for each, _, payload in list(collector.packets) if each == key]


@pytest.mark.parametrize(
    "cut_s", [0.6, pytest.param(3.0, marks=pytest.mark.slow), pytest.param(14.0, marks=pytest.mark.slow)]
)
def test_a_router_is_killed_and_reliable_packets_are_all_there(cut_s: float) -> None:
    """The plain ones that were sent meanwhile are lost, and the gap can be seen in their numbers."""
    endpoint = f"tcp/127.0.0.1:{free_port()}"
    address = f"r?connect={endpoint}"
    with router(endpoint) as first, participant(address) as (a, at_a), participant(address) as (b, at_b):
        b.subscribe("r/*")
        b.subscribe("r/*/*")
        reliable, plain = a.sender("r/reliable", Sending(reliable=True)), a.sender("r/plain/x", Sending())
        put_until([reliable, plain], lambda: numbers(at_b, "r/reliable") and numbers(at_b, "r/plain/x"))
        wait_for(lambda: all(each.recovers for each in b._subscribers.of("r/*")))
        with ticking(reliable, plain) as ticker:
            wait_for(lambda: numbers(at_b, "r/plain/x")[-1] > 20)
            first.kill()
            wait_for(lambda: at_a.connections == [True, False] and at_b.connections == [True, False])
            time.sleep(cut_s)  # how long the router is away is what is tested
            with router(endpoint):
                wait_for(lambda: at_a.connections[-1] and at_b.connections[-1])
                back = ticker.sent
                wait_for(lambda: numbers(at_b, "r/plain/x")[-1] > back)
                last = ticker.stop()
                wait_for(lambda: last in numbers(at_b, "r/reliable") and len(set(numbers(at_b, "r/reliable"))) > last)
        got = [each for each in numbers(at_b, "r/reliable") if each >= 0]
        assert sorted(set(got)) == list(range(last + 1))
        lost = set(range(last + 1)) - set(numbers(at_b, "r/plain/x"))
        assert len(lost) >= cut_s / TICK_S / 4
        assert b.counters()["not recovered"] == 0


def test_tokens_and_kept_packets_come_back_with_the_router() -> None:
    endpoint = f"tcp/127.0.0.1:{free_port()}"
    address = f"r?connect={endpoint}"
    with router(endpoint) as first, participant(address) as (a, at_a), participant(address) as (b, at_b):
        a.declare("@genus/r/here/a")
        b.watch("@genus/r/here/**")
        b.subscribe("@genus/r/last/**", kept=True)
        lamp = a.sender("@genus/r/last/Lamp/=1", Sending(keep=True))
        put_until(lamp, lambda: at_b.tokens.get("@genus/r/here/a") and at_b.packets, b"on")
        first.kill()
        wait_for(lambda: not at_b.tokens["@genus/r/here/a"] and at_a.connections[-1] is False)
        lamp.put(b"off", b"while nobody could hear it")
        with router(endpoint):
            wait_for(lambda: at_b.tokens["@genus/r/here/a"])
            wait_for(lambda: at_b.payloads[-1] == b"off")


def test_a_router_that_is_down_is_named_with_the_reason() -> None:
    port = free_port()
    began = time.monotonic()
    with (
        pytest.raises(BusError, match=rf"within 0.3 s: tcp/127.0.0.1:{port}: nothing listens there"),
        participant(f"r?wait=300ms&connect=tcp/127.0.0.1:{port}"),
    ):
        pass
    assert time.monotonic() - began < 5


def test_a_router_that_is_down_can_be_waited_for() -> None:
    endpoint = f"tcp/127.0.0.1:{free_port()}"
    opened: list[bool] = []

    def open_and_close() -> None:
        with participant(f"r?wait=30s&connect={endpoint}") as (_, collector):
            wait_for(lambda: collector.connections == [True])
            opened.append(True)

    waiting = threading.Thread(target=open_and_close)
    waiting.start()
    with router(endpoint):
        waiting.join(30)
    assert opened == [True]


# -- TLS ---------------------------------------------------------------------------------------------------------------


def test_mutual_tls_lets_in_who_has_a_certificate(tmp_path: Path) -> None:
    authority, other = Authority(tmp_path), Authority(tmp_path, "other")
    own, client, stranger = authority.issue("router"), authority.issue("client"), other.issue("stranger")
    port = free_port()
    to_router = f"r?connect=tls/localhost:{port}&ca={authority.root}"
    with router(
        f"tls/127.0.0.1:{port}",
        transport__link__tls__root_ca_certificate=str(authority.root),
        transport__link__tls__listen_certificate=str(own.certificate),
        transport__link__tls__listen_private_key=str(own.key),
        transport__link__tls__enable_mtls=True,
    ):
        known = f"{to_router}&cert={client.certificate}&key={client.key}&wait=10s"
        with participant(known) as (a, _), participant(known) as (b, at_b):
            b.subscribe("r/**")
            put_until(a.sender("r/x", Sending()), lambda: at_b.packets)
        for refused, why in (
            (f"{to_router}&wait=500ms", "TLS failed"),
            (f"{to_router}&cert={stranger.certificate}&key={stranger.key}&wait=500ms", "TLS failed"),
            (f"r?connect=tcp/localhost:{port}&wait=500ms", "does it want TLS"),
        ):
            with pytest.raises(BusError, match=why), participant(refused):
                pass
