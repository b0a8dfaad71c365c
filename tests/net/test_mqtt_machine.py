"""The client machine of MQTT, without I/O: what it sends and tells for what it is given."""

from random import Random
from typing import Any

import mqtt5
import pytest

from genus.net._mqtt.machine import SECOND, ClientMachine
from genus.net._mqtt.session import Closing, Connected, Filter, Granted, Refused, Session, Undelivered
from genus.net._mqtt.wire import Decoder, Message, Outgoing, PublishForm


class Served:
    """A machine with a stream to a server that the test plays."""

    def __init__(self, machine: ClientMachine, now: int = 0, **connack: Any) -> None:
        self.machine = machine
        self._decoder = Decoder(1 << 28, fast=False)
        machine.opened(now)
        [self.connect] = self.sent(now)
        self.say(mqtt5.ConnAckPacket(**connack), now)

    def say(self, packet: mqtt5.Packet, now: int = 0) -> list[Any]:
        return self.machine.receive(packet.write(), now)

    def sent(self, now: int = 0) -> list[Any]:
        """The packets that the machine sends now."""
        return self._decoder.feed(b"".join(self.machine.pull(1 << 20, now)))


def packet(name: str, qos: int = 1, expires_at: int | None = None, size: int = 1) -> Outgoing:
    head, tail = PublishForm("city/Loop", qos=qos).parts(b"p" * size, name.encode())
    return name, head, tail, expires_at


def names(packets: list[Any]) -> list[str]:
    return [each.correlation_data.decode() for each in packets]


def machine_with(*items: Outgoing, **session: Any) -> ClientMachine:
    machine = ClientMachine(Session("client", **session))
    for item in items:
        machine.publish(item)
    return machine


def test_connect_asks_for_the_session() -> None:
    will = mqtt5.Will("tokens", payload=b"", retain=True)
    asked = {"clean_start": False, "expires_s": 60, "keep_alive_s": 7, "user": "ann", "password": b"secret"}
    machine = machine_with(**asked, will=lambda: will)
    connect = Served(machine).connect
    assert (connect.client_id, connect.clean_start, connect.session_expiry_interval) == ("client", False, 60)
    assert (connect.keep_alive, connect.username, connect.password) == (7, "ann", b"secret")
    assert (connect.will.topic, connect.will.retain) == ("tokens", True)
    assert "secret" not in repr(Session("client", password=b"secret"))


def test_the_limits_of_connack_are_told() -> None:
    machine = machine_with(keep_alive_s=7)
    Served(
        machine,
        receive_max=3,
        retain_available=False,
        shared_subscription_available=False,
        max_packet_size=1000,
        server_keep_alive=2,
    )
    [connected] = machine.take()
    assert isinstance(connected, Connected)
    limits = connected.limits
    assert (limits.receive_max, limits.keeps, limits.shares, limits.largest) == (3, False, False, 1000)
    assert limits.keep_alive_s == 2


def test_a_refused_connection_is_told_with_the_reason() -> None:
    machine = machine_with()
    Served(machine, reason_code=mqtt5.ConnAckReasonCode.NOT_AUTHORIZED, reason_str="go\x07 away")
    assert machine.take() == [Closing("the server refused the connection: not authorized (135): go away")]
    assert not machine.is_connected


def test_nothing_is_published_before_connack() -> None:
    machine = machine_with(packet("a", qos=0))
    machine.opened(0)
    assert len(machine.pull(1 << 20, 0)) == 1
    assert machine.pull(1 << 20, 0) == []


def test_at_most_receive_max_packets_are_in_flight() -> None:
    server = Served(machine_with(*(packet(str(number)) for number in range(5))), receive_max=2)
    first = server.sent()
    assert names(first) == ["0", "1"]
    assert server.sent() == []
    server.say(mqtt5.PubAckPacket(first[1].packet_id))
    assert names(server.sent()) == ["2"]
    assert server.machine.counts["acknowledged"] == 1


def test_packets_keep_their_order_and_urgent_ones_go_first() -> None:
    machine = machine_with(packet("a", qos=0), packet("b"), packet("c", qos=0))
    machine.publish(packet("now", qos=0), is_urgent=True)
    assert names(Served(machine).sent()) == ["now", "a", "b", "c"]


def test_a_pull_ends_at_about_so_many_bytes() -> None:
    machine = machine_with(*(packet(str(number), qos=0, size=100) for number in range(9)))
    Served(machine)
    assert len(machine.pull(300, 0)) == 3
    assert machine.waiting_bytes == sum(len(item[1]) for item in machine.waiting)


def test_packets_in_flight_are_sent_again_marked_if_the_session_was_kept() -> None:
    machine = machine_with(packet("a"), packet("b"), expires_s=60)
    first = Served(machine).sent()
    machine.closed(0)
    machine.publish(packet("c"))
    server = Served(machine, session_present=True)
    again = server.sent()
    assert not server.connect.clean_start
    assert names(again) == ["a", "b", "c"]
    assert [each.duplicate for each in again] == [True, True, False]
    assert [each.packet_id for each in again[:2]] == [each.packet_id for each in first]


def test_packets_in_flight_are_sent_again_as_new_if_the_session_was_lost() -> None:
    machine = machine_with(packet("a"), packet("b"))
    Served(machine).sent()
    machine.closed(0)
    server = Served(machine)
    again = server.sent()
    assert server.connect.clean_start
    assert names(again) == ["a", "b"]
    assert [each.duplicate for each in again] == [False, False]


def test_sending_again_keeps_to_the_new_window() -> None:
    machine = machine_with(*(packet(str(number)) for number in range(4)))
    Served(machine).sent()
    machine.closed(0)
    server = Served(machine, receive_max=1)
    machine.publish(packet("new"))
    order = []
    while sent := server.sent():
        order += names(sent)
        server.say(mqtt5.PubAckPacket(sent[0].packet_id))
    assert order == ["0", "1", "2", "3", "new"]


def test_a_refused_packet_is_told_and_one_without_subscribers_counted() -> None:
    server = Served(machine_with(packet("a"), packet("b")))
    server.machine.take()
    first, second = server.sent()
    server.say(mqtt5.PubAckPacket(first.packet_id, reason_code=mqtt5.PubAckReasonCode.NOT_AUTHORIZED))
    server.say(mqtt5.PubAckPacket(second.packet_id, reason_code=mqtt5.PubAckReasonCode.NO_MATCHING_SUBSCRIBERS))
    assert server.machine.take() == [Undelivered("a", "the server refused it: not authorized (135)")]
    assert server.machine.counts["no_matching_subscribers"] == 1


def test_an_acknowledgement_of_nothing_is_counted() -> None:
    server = Served(machine_with())
    server.say(mqtt5.PubAckPacket(77))
    assert server.machine.counts["unknown_acknowledgements"] == 1


def test_packets_that_expired_or_are_too_large_are_told() -> None:
    machine = machine_with(
        packet("late", expires_at=5), packet("large", qos=0, size=500), packet("fits", expires_at=20)
    )
    server = Served(machine, max_packet_size=200)
    machine.take()
    assert names(server.sent(now=10)) == ["fits"]
    assert machine.take() == [
        Undelivered("late", "it expired before it could be sent"),
        Undelivered("large", "the server takes packets of up to 200 bytes"),
    ]


def test_messages_are_given_and_acknowledged() -> None:
    server = Served(machine_with())
    qos_1 = mqtt5.PublishPacket("a", b"1", qos=mqtt5.QoS.AT_LEAST_ONCE, packet_id=9, correlation_data=b"e")
    assert server.say(qos_1) == [("a", b"e", b"1", 9)]
    assert server.say(mqtt5.PublishPacket("a", b"0")) == [("a", b"", b"0", 0)]
    [acknowledgement] = server.sent()
    assert acknowledgement.packet_id == 9


def test_subscriptions_are_granted_or_refused() -> None:
    server = Served(machine_with())
    server.machine.take()
    server.machine.subscribe(Filter("city/#", kept=True))
    server.machine.subscribe(Filter("secret/#"))
    first, second = server.sent()
    assert [(each.pattern, each.no_local, int(each.retain_handling)) for each in first.topic_filters] == [
        ("city/#", True, 0)
    ]
    server.say(mqtt5.SubAckPacket(first.packet_id, [mqtt5.SubAckReasonCode.GRANTED_QOS_AT_LEAST_ONCE]))
    server.say(mqtt5.SubAckPacket(second.packet_id, [mqtt5.SubAckReasonCode.NOT_AUTHORIZED]))
    assert server.machine.take() == [Granted("city/#", 1), Refused("secret/#", "not authorized (135)")]
    server.machine.closed(0)
    again = Served(server.machine).sent()
    assert [each.pattern for asked in again for each in asked.topic_filters] == ["city/#"]


def test_after_a_reconnect_with_session_only_what_is_missing_is_asked() -> None:
    machine = machine_with(expires_s=60)
    server = Served(machine)
    for pattern in ("kept", "ended"):
        machine.subscribe(Filter(pattern))
        [asked] = server.sent()
        server.say(mqtt5.SubAckPacket(asked.packet_id, [mqtt5.SubAckReasonCode.GRANTED_QOS_AT_LEAST_ONCE]))
    machine.subscribe(Filter("unanswered"))
    server.sent()
    machine.closed(0)
    machine.unsubscribe("ended")
    machine.subscribe(Filter("new"))
    sent = Served(machine, session_present=True).sent()
    asked = [each.pattern for each in sent if isinstance(each, mqtt5.SubscribePacket) for each in each.topic_filters]
    assert asked == ["unanswered", "new"]
    assert [each.patterns for each in sent if isinstance(each, mqtt5.UnsubscribePacket)] == [["ended"]]


def test_many_subscriptions_are_asked_in_several_packets() -> None:
    machine = machine_with()
    for number in range(250):
        machine.subscribe(Filter(f"t/{number}"))
    assert [len(each.topic_filters) for each in Served(machine).sent()] == [100, 100, 50]


def test_silence_is_tested_by_a_ping_and_ends_the_connection() -> None:
    server = Served(machine_with(keep_alive_s=8))
    machine = server.machine
    machine.take()
    assert machine.wake_at == 4 * SECOND
    machine.wake(4 * SECOND)
    assert isinstance(server.sent(4 * SECOND)[0], mqtt5.PingReqPacket)
    server.say(mqtt5.PingRespPacket(), 5 * SECOND)
    assert machine.wake_at == 8 * SECOND
    machine.wake(8 * SECOND)
    server.sent(8 * SECOND)
    machine.wake(12 * SECOND)
    assert machine.wake_at == 13 * SECOND
    machine.wake(13 * SECOND)
    assert machine.take() == [Closing("the server does not answer")]


def test_a_server_without_connack_is_given_up() -> None:
    machine = machine_with()
    machine.opened(0)
    assert machine.wake_at == 5 * SECOND
    machine.wake(5 * SECOND)
    assert machine.take() == [Closing("the server does not answer")]


def test_the_end_by_the_server_is_told_and_a_taken_session_is_final() -> None:
    codes = mqtt5.DisconnectReasonCode
    for code, is_final in ((codes.SERVER_SHUTTING_DOWN, False), (codes.SESSION_TAKEN_OVER, True)):
        server = Served(machine_with())
        server.machine.take()
        server.say(mqtt5.DisconnectPacket(reason_code=code))
        [closing] = server.machine.take()
        assert isinstance(closing, Closing)
        assert closing.is_final == is_final


def test_a_bad_packet_ends_the_connection_with_its_reason() -> None:
    codes = mqtt5.DisconnectReasonCode
    cases = [
        (b"\x30\x05\x00\x03a\xffb", codes.MALFORMED_PACKET),
        (mqtt5.ConnAckPacket().write(), codes.PROTOCOL_ERROR),
        (mqtt5.PingReqPacket().write(), codes.PROTOCOL_ERROR),
        (mqtt5.SubAckPacket(5, [mqtt5.SubAckReasonCode.NOT_AUTHORIZED]).write(), codes.PROTOCOL_ERROR),
        (b"\x30\xff\xff\xff\x7f", codes.PACKET_TOO_LARGE),
    ]
    for data, code in cases:
        server = Served(machine_with())
        good = mqtt5.PublishPacket("a", b"0").write()
        assert len(server.machine.receive(good + data + good, 0)) == 1
        [disconnect] = server.sent()
        assert disconnect.reason_code == code
        assert [type(each) for each in server.machine.take()] == [Connected, Closing]


def test_disconnect_lets_the_server_publish_the_will_now_or_when_the_session_ends() -> None:
    for keeps_session, expiry in ((False, 0), (True, None)):
        server = Served(machine_with())
        server.machine.disconnect(keeps_session=keeps_session)
        [disconnect] = server.sent()
        assert (int(disconnect.reason_code), disconnect.session_expiry_interval) == (4, expiry)


def test_an_answer_that_is_not_of_mqtt_is_told_as_such() -> None:
    for data, why in (
        (b"\x15\x03\x01\x00\x02\x02\x46", "the server expects TLS; write mqtts:// instead of mqtt://"),
        (b"HTTP/1.1 400 Bad Request\r\n\r\n", "the server does not speak MQTT 5: "),
    ):
        machine = machine_with()
        machine.opened(0)
        machine.receive(data + bytes(100), 0)
        [closing] = machine.take()
        assert isinstance(closing, Closing)
        assert closing.why.startswith(why)


def test_presence_is_sent_after_each_connect_when_it_changes_and_twice_in_the_keep_alive_time() -> None:
    machine = machine_with(keep_alive_s=8)
    shown: list[bytes] = []
    machine.show(lambda: PublishForm("tokens", retain=True).parts(b"".join(shown), b"")[0])
    server = Served(machine)

    def payloads(now: int) -> list[bytes]:
        return [each.payload for each in server.sent(now) if isinstance(each, mqtt5.PublishPacket)]

    assert payloads(0) == [b""]
    shown.append(b"a")
    assert payloads(0) == []
    machine.show(machine._presence or bytes)
    machine.show(machine._presence or bytes)
    assert payloads(0) == [b"a"]
    for now in (4 * SECOND, 8 * SECOND):
        assert machine.wake_at == now
        machine.wake(now)
        assert payloads(now) == [b"a"]
        server.say(mqtt5.PingRespPacket(), now)
    machine.closed(0)
    server = Served(machine)
    assert payloads(0) == [b"a"]


class Broker:
    """What a broker does with the messages of a session: a window, and what is not acknowledged is sent again."""

    def __init__(self, count: int, window: int) -> None:
        self.queue = list(range(count))
        self.window = window
        self.in_flight: dict[int, int] = {}
        self.packet_id = 0

    def send(self, is_again: bool) -> bytes:
        made = b""
        for packet_id, number in self.in_flight.items() if is_again else ():
            made += self.packet(packet_id, number, is_again)
        while self.queue and len(self.in_flight) < self.window:
            self.packet_id = self.packet_id % 7 + 1  # ids are used again soon
            while self.packet_id in self.in_flight:
                self.packet_id = self.packet_id % 7 + 1
            self.in_flight[self.packet_id] = self.queue.pop(0)
            made += self.packet(self.packet_id, self.in_flight[self.packet_id], False)
        return made

    @staticmethod
    def packet(packet_id: int, number: int, is_again: bool) -> bytes:
        return mqtt5.PublishPacket(
            "a", str(number).encode(), qos=mqtt5.QoS(1), packet_id=packet_id, duplicate=is_again
        ).write()


@pytest.mark.parametrize("seed", range(30))
def test_messages_are_acknowledged_when_they_were_handled_and_given_once_for_each_session(seed: int) -> None:
    """Law: handled at random while connections break at random, each message is given once, none is lost."""
    chance, broker, given, handled = Random(seed), Broker(40, 3), [], []
    machine = machine_with(clean_start=False, expires_s=60, acknowledges_late=True)
    waiting: list[Message] = []
    server, is_first = Served(machine), True
    while broker.queue or broker.in_flight:
        for message in machine.receive(broker.send(is_again=is_first), 0):
            given.append(int(message[2]))
            waiting.append(message)
        is_first = False
        assert set(broker.in_flight.values()) >= {int(each[2]) for each in waiting}, "not acknowledged before"
        for _ in range(chance.randint(0, 2)):
            if waiting:
                handled.append(int(waiting[0][2]))
                machine.handled([waiting.pop(0)])
        is_cut = chance.random() < 0.3
        if is_cut and chance.random() < 0.5:
            machine.closed(0)  # acknowledgements that were not sent are lost
        else:
            for each in server.sent():
                if isinstance(each, mqtt5.PubAckPacket):
                    del broker.in_flight[each.packet_id]
        if is_cut:
            machine.closed(0)
            server, is_first = Served(machine, session_present=True), True
    assert sorted(set(given)) == list(range(40))
    assert sorted(set(handled)) == list(range(40))
    assert len(given) - 40 <= machine.counts["received_again"]


def test_what_is_unhandled_of_a_session_that_the_server_lost_is_not_acknowledged() -> None:
    machine = machine_with(clean_start=False, expires_s=60, acknowledges_late=True)
    Served(machine)
    [old] = machine.receive(Broker.packet(1, 0, is_again=False), 0)
    machine.closed(0)
    server = Served(machine)
    [new] = machine.receive(Broker.packet(1, 1, is_again=False), 0)
    machine.handled([old])
    assert server.sent() == []
    machine.handled([new])
    assert [each.packet_id for each in server.sent()] == [1]
