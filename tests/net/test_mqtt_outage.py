"""What survives when the broker, the network or the process goes away and comes back."""

import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from random import Random

import pytest

from genus.net._mqtt.transport import MqttTransport
from genus.net._transport import Sending
from genus.testing import MqttBroker
from tests.net.mqtt_servers import KINDS, Listener, Server, make_server, participant, running
from tests.waiting import wait_for

RELIABLE = Sending(reliable=True)


@pytest.fixture(params=KINDS)
def server(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[Server]:
    with running(make_server(request.param, tmp_path)) as made:
        yield made


class Source:
    """Publishes numbers in a thread until it is stopped."""

    def __init__(self, transport: MqttTransport) -> None:
        self.count = 0
        self._sender = transport.sender("city/a", RELIABLE)
        self._stop = threading.Event()
        self._thread = threading.Thread(target=self._run)

    def _run(self) -> None:
        while not self._stop.wait(0.0005):
            self._sender.put(str(self.count).encode(), self.count.to_bytes(25, "big"))
            self.count += 1

    @contextmanager
    def running(self) -> Iterator["Source"]:
        self._thread.start()
        try:
            yield self
        finally:
            self._stop.set()
            self._thread.join()


def first_times(listener: Listener) -> list[int]:
    """The numbers in the order in which they first arrived."""
    return list(dict.fromkeys(int(payload) for payload in listener.payloads))


def lose_nothing(server: Server, problem: Callable[[MqttTransport, MqttTransport], None]) -> None:
    """Publish all through some problem; every packet arrives, in order."""
    with (
        participant(server, "session=receiver&capacity=100000") as (receiver, heard),
        participant(server, "session=sender&capacity=100000") as (sender, sender_heard),
    ):
        receiver.subscribe("city/#")
        with Source(sender).running() as source:
            wait_for(lambda: len(heard.packets) > 50)
            problem(sender, receiver)
            seen = len(heard.packets)
            wait_for(lambda: len(heard.packets) > seen + 50, "nothing arrives after the outage")
        wait_for(lambda: len(first_times(heard)) >= source.count, f"{source.count} were sent")
        assert first_times(heard) == list(range(source.count))
        assert sender_heard.drops == {}


def outage(server: Server, seconds: float) -> Callable[[MqttTransport, MqttTransport], None]:
    def stop_and_start(*_: MqttTransport) -> None:
        server.stop()
        time.sleep(seconds)  # how long the broker is away is what the test is about
        server.start()

    return stop_and_start


def test_a_broker_that_is_restarted_costs_nothing_with_a_session(server: Server) -> None:
    lose_nothing(server, outage(server, 0.3))


@pytest.mark.slow
@pytest.mark.parametrize("seconds", [3, 14])
def test_a_broker_that_is_away_for_seconds_costs_nothing_with_a_session(server: Server, seconds: float) -> None:
    lose_nothing(server, outage(server, seconds))


def test_cut_connections_cost_nothing_with_a_session(server: Server) -> None:
    chance = Random(7)

    def cut(*transports: MqttTransport) -> None:
        for _ in range(6):
            which = chance.choice(transports)
            wait_for(lambda which=which: which._connection.is_connected)  # type: ignore[misc]
            with which._connection._lock:
                if (stream := which._connection._stream) is not None:
                    which._connection._break_stream(stream)
            wait_for(lambda which=which: not which._connection.is_connected)  # type: ignore[misc]
        for each in transports:
            wait_for(lambda each=each: each._connection.is_connected)  # type: ignore[misc]

    lose_nothing(server, cut)


def test_a_broker_that_forgot_everything_is_told_again() -> None:
    """Subscriptions are made again, kept tokens are shown again, and packets in flight sent again."""
    broker = MqttBroker()
    with running(broker), participant(broker) as (one, one_heard), participant(broker) as (other, heard):
        other.subscribe("city/#")
        other.watch("@genus/city/#")
        one.declare("@genus/city/here/one")
        wait_for(lambda: heard.present == {"@genus/city/here/one"})
        broker.stop(forget=True)
        wait_for(lambda: heard.connections == one_heard.connections == [True, False])
        broker.start()
        wait_for(lambda: heard.connections == one_heard.connections == [True, False, True])
        wait_for(lambda: any(session.filters for session in broker.sessions.values()))
        one.sender("city/a", RELIABLE).put(b"after", b"")
        wait_for(lambda: heard.payloads == [b"after"])
        wait_for(lambda: len(broker.retained) == 1)
        assert heard.tokens == [("@genus/city/here/one", True)]


def test_a_process_that_restarts_with_its_session_gets_what_it_missed(server: Server) -> None:
    with participant(server) as (one, heard_of), participant(server) as (watcher, watched):
        watcher.watch("@genus/city/#")
        with participant(server, "session=actuator") as (first, _):
            first.subscribe("city/#")
            first.declare("@genus/city/want/first")
            wait_for(lambda: watched.present == {"@genus/city/want/first"})
        sender = one.sender("city/a", RELIABLE)
        for number in range(50):
            sender.put(str(number).encode(), b"")
        wait_for(lambda: one.counters().get("acknowledged") == 50)
        assert watched.present == {"@genus/city/want/first"}
        with participant(server, "session=actuator") as (second, heard):
            wait_for(lambda: second.counters().get("received") == 50)
            second.subscribe("other/#")
            assert heard.packets == []
            second.subscribe("city/#")
            wait_for(lambda: len(heard.packets) == 50)
            assert first_times(heard) == list(range(50))
            second.declare("@genus/city/want/second")
            wait_for(lambda: watched.present == {"@genus/city/want/second"})
        assert heard_of.drops == {}


def test_the_tokens_of_a_session_go_when_it_expires(server: Server) -> None:
    with participant(server) as (watcher, heard):
        watcher.watch("@genus/city/#")
        with participant(server, "session=gate&session_expires=1s") as (one, _):
            one.declare("@genus/city/here/gate")
            wait_for(lambda: heard.present == {"@genus/city/here/gate"})
        wait_for(lambda: heard.present == set())


def test_closing_tells_what_could_not_be_sent() -> None:
    broker = MqttBroker()
    with running(broker), participant(broker) as (one, heard):
        broker.stop()
        wait_for(lambda: heard.connections == [True, False])
        sender = one.sender("city/a", RELIABLE)
        for number in range(5):
            sender.put(str(number).encode(), b"")
        one.close()
        assert heard.drops == {("city/a", "the transport was closed"): 5}


def test_packets_that_expired_while_the_broker_was_away_are_told() -> None:
    broker = MqttBroker()
    with running(broker), participant(broker) as (one, heard):
        broker.stop()
        wait_for(lambda: heard.connections == [True, False])
        one.sender("city/a", Sending(reliable=True, expires_s=0.000001)).put(b"1", b"")
        one.sender("city/b", Sending(reliable=True, expires_s=1000)).put(b"2", b"")
        broker.start()
        wait_for(lambda: heard.drops == {("city/a", "it expired before it could be sent"): 1})
        wait_for(lambda: one.counters().get("acknowledged") == 1)
