"""`MqttTransport`: packets, tokens and last values over any broker of MQTT 5."""

import hashlib
import math
import threading
import time
from collections import Counter
from collections.abc import Callable, Collection, Mapping
from concurrent.futures import Future
from functools import cache, partial
from itertools import chain
from random import Random
from typing import Final

import mqtt5

from genus.errors import BusError, Reasons
from genus.net._envelope import new_uid
from genus.net._mqtt.address import Endpoint, MqttOptions
from genus.net._mqtt.connection import LAST_S, Connection
from genus.net._mqtt.machine import SECOND, ClientMachine
from genus.net._mqtt.session import (
    Changes,
    Connected,
    Ended,
    Filter,
    Granted,
    HandledMessages,
    MessageMailbox,
    Notice,
    OtherTokens,
    OwnTokens,
    PendingMessages,
    Refused,
    Session,
    Undelivered,
)
from genus.net._mqtt.wire import OVERHEAD, Message, PublishForm
from genus.net._transport import SOFT, Abilities, Receiver, ReceiverFailures, Sending
from genus.targets.topics import MQTT, Dialect

MAX_SIZE: Final = 64 * 1024 * 1024
ANSWER_S: Final = 10.0
RECEIVE_WINDOW: Final = 1000
"""Messages that the broker may send to a session before the first is handled; links remember the last 1,024 numbers of
a publisher, so that those that are sent again are known."""
ACKNOWLEDGE_S: Final = 0.001
"""How long an acknowledgement may wait for others while messages are handled."""
MAX_NUMBER: Final = 268_435_455
"""The largest subscription identifier."""


class MqttSender:
    """Sends the packets of one topic."""

    def __init__(self, connection: Connection, key: str, sending: Sending, qos: int) -> None:
        self.key = key
        expires_s = sending.expires_s
        expiry = None if expires_s is None else min(math.ceil(expires_s), 0xFFFF_FFFF)
        form = PublishForm(key, qos=qos, retain=sending.keep, expiry_s=expiry, content_type=sending.content_type)
        self._parts = form.parts
        self._send = connection.send
        self._is_urgent = sending.priority >= SOFT
        self._expires_ns = None if expires_s is None else int(expires_s * SECOND)
        self._is_closed = False

    def put(self, payload: bytes, envelope: bytes) -> None:
        if self._is_closed:
            raise BusError(f"the sender of {self.key!r} is closed")
        head, tail = self._parts(payload, envelope)
        expires_at = None if self._expires_ns is None else time.monotonic_ns() + self._expires_ns
        self._send((self, head, tail, expires_at), self._is_urgent)

    def close(self) -> None:
        self._is_closed = True


class MqttTransport:
    """A connection to a broker of MQTT 5.

    `reliable` packets have QoS 1, kept ones are retained, `expires_s` is rounded up to whole seconds. The envelope is
    the correlation data. With a session that the broker keeps, tokens stay for as long as it does; without one they
    are gone with the connection, or with `close`. What the broker kept for a session of an earlier process waits up to
    30 seconds until this one has subscribed to it.

    With a session, packets are acknowledged when the receiver has handled them, so that a process that is killed gets
    the others again when it is back; with a session file, it gets none twice but the one it was handling.

    `will` gives the will of each connection, instead of the end of the tokens; one that has it shows none.
    """

    def __init__(
        self,
        options: MqttOptions,
        random: Random | None = None,
        will: Callable[[], mqtt5.Will | None] | None = None,
    ) -> None:
        uid = new_uid().hex()
        self._options = options
        self._client_id = options.session or f"genus-{uid}"
        self._tokens_at = f"@genus/{options.realm}/tokens/"
        self._own_topic = self._tokens_at + self._client_id
        self._acknowledges_late = options.session is not None
        self._machine = ClientMachine(self._session(will))
        self._mailbox = MessageMailbox(options.receive_capacity, options.receive_overflow, self._must_keep)
        self._connection = Connection(
            Endpoint.of(options),
            self._machine,
            self._mailbox,
            self._told,
            self._lost,
            capacity=options.capacity,
            overflow=options.overflow,
            random=random,
        )
        self._lock = threading.Lock()
        self._questions: dict[str, list[_Answer]] = {}
        """Who waits for an answer of the broker, by pattern."""
        self._users: Counter[str] = Counter()
        self._share_ids: dict[tuple[str, str], int] = {}
        self._own = OwnTokens()
        self._others = OtherTokens()
        self._pending = PendingMessages(options.receive_capacity, self._drop_pending)
        self._handled: HandledMessages | None = None
        self._unacknowledged: list[Message] = []
        """Messages that were handled, until they are acknowledged together."""
        self._acknowledged_at = 0.0
        self._handling_since: float | None = None
        self._is_stopping = self._is_abandoned = False
        self._drops: Counter[tuple[str, str]] = Counter()
        self._counts = Reasons()
        self._failures = ReceiverFailures()
        self._is_up = self._is_closed = False
        self._receiver: Receiver

    def _session(self, will: Callable[[], mqtt5.Will | None] | None) -> Session:
        options = self._options
        end_of_tokens = mqtt5.Will(
            self._own_topic,
            payload=b"",
            qos=mqtt5.QoS.AT_LEAST_ONCE,
            retain=True,
            will_delay_interval=options.session_expires_s,
        )
        return Session(
            self._client_id,
            clean_start=options.session is None,
            expires_s=options.session_expires_s,
            keep_alive_s=options.keep_alive_s,
            user=options.username,
            password=None if options.password is None else options.password.text.encode(),
            will=will or (lambda: end_of_tokens),
            largest=MAX_SIZE + OVERHEAD,
            receive_max=min(options.receive_capacity, RECEIVE_WINDOW) if self._acknowledges_late else 65_535,
            acknowledges_late=self._acknowledges_late,
        )

    def _must_keep(self, message: Message) -> bool:
        """Return whether others depend on a message, or it is of a session: then few wait, by the window."""
        return message[0].startswith(self._tokens_at) or (self._acknowledges_late and message[3] > 0)

    # -- the contract of transports ------------------------------------------------------------------------------------

    @property
    def dialect(self) -> Dialect:
        return MQTT

    @property
    def abilities(self) -> Abilities:
        """What the broker can keep, as it said when the connection was made."""
        limits, why = self._machine.limits, {}
        if not limits.keeps:
            why["keeps"] = "the broker does not retain messages"
        if not self._options.qos:
            why["reliable"] = "the address says qos=0"
        elif not limits.qos:
            why["reliable"] = "the broker has QoS 0 only"
        largest = min(MAX_SIZE, max(0, limits.largest - OVERHEAD))
        return Abilities(limits.keeps, "reliable" not in why, has_server=True, largest=largest, why=why)

    def open(self, receiver: Receiver) -> None:
        self._receiver = receiver
        if self._options.session_file is not None:
            self._handled = HandledMessages(self._options.session_file)
        self._mailbox.start(self._dispatch, "genus mqtt handler")
        try:
            self._connection.open()
        except BusError as problem:
            self._mailbox.close(ANSWER_S)
            raise BusError(f"{self._options.shown}: {problem}") from None

    def sender(self, key: str, sending: Sending) -> MqttSender:
        if not MQTT.is_key(key) or len(key.encode()) > 65_535:
            raise BusError(f"{key[:80]!r} is not a topic of MQTT")
        qos = 1 if sending.reliable and self.abilities.reliable else 0
        return MqttSender(self._connection, key, sending, qos)

    def subscribe(self, pattern: str, *, kept: bool = False) -> Callable[[], None]:
        """Receive packets of topics that match; with `kept`, first those that are retained.

        Returns a function to end the subscription. BusError if the broker refuses it. While there is no connection,
        the subscription is made with the next one.
        """
        end = self._use(Filter(pattern, self._options.qos, kept, own=kept), is_refreshed=kept)
        self._mailbox.call(lambda: self._subscribed(pattern))
        return end

    def subscribe_others(self, pattern: str) -> Callable[[], None]:
        """Receive packets of topics that match, retained ones first, but none of this client's own."""
        end = self._use(Filter(pattern, self._options.qos, kept=True), is_refreshed=True)
        self._mailbox.call(lambda: self._subscribed(pattern))
        return end

    @property
    def can_share(self) -> bool:
        return self._machine.limits.shares

    def share_of(self, group: str, pattern: str) -> str:
        """Return the subscription identifier that the packets of a shared subscription come with.

        It is the same in each process, as a session that the broker keeps has packets of an earlier one.
        """
        with self._lock:
            if (group, pattern) not in self._share_ids:
                self._share_ids[group, pattern] = _free_number(f"{group}/{pattern}", self._share_ids.values())
            return str(self._share_ids[group, pattern])

    def share(self, group: str, pattern: str) -> Callable[[], None]:
        """Receive each packet of topics that match unless another member of the group does: a shared subscription."""
        shared, number = self._shared(pattern, group), int(self.share_of(group, pattern))
        # with a group the standard forbids to leave out what this client sent
        end = self._use(Filter(shared, self._options.qos, own=True, number=number), is_refreshed=False)
        self._mailbox.call(lambda: self._subscribed(f"$share/{number}/{pattern}"))
        return cache(lambda: self._end_share(shared, end))

    def _end_share(self, shared: str, end: Callable[[], None]) -> None:
        """End a shared subscription, and wait until the packets that came for it are handled."""
        answer = self._ask(_end_of(shared))  # before it ends: the answer may come at once
        end()
        with self._lock:
            is_used = shared in self._users
        self._await_answer(_end_of(shared), answer, 0.0 if is_used or self._mailbox.is_own_thread else ANSWER_S)

    def _end_shares(self) -> None:
        """Leave all groups: the broker gives their packets to others from now on, and what came is handled."""
        with self._lock:
            shares = [pattern for pattern in self._users if pattern.startswith("$share/")]
        for shared in shares:
            self._end_share(shared, partial(self._unsubscribe, shared, is_last=True))

    def _use(self, wanted: Filter, *, is_refreshed: bool) -> Callable[[], None]:
        """Subscribe unless it is done already; if `is_refreshed`, even then, to get what is retained."""
        pattern = wanted.pattern
        with self._lock:
            self._users[pattern] += 1
            is_new = self._users[pattern] == 1
        if is_new or is_refreshed:
            self._subscribe(wanted)
        return cache(lambda: self._unsubscribe(pattern))

    def _shared(self, pattern: str, group: str) -> str:
        if not self._machine.limits.shares:
            raise BusError(f"{self._options.shown}: the broker has no shared subscriptions, which a group needs")
        if not group or any(sign in "/+#\0" for sign in group):
            raise BusError(f"{group!r} cannot be the name of a group: it must not have any of / + #")
        return f"$share/{group}/{pattern}"

    def _subscribe(self, wanted: Filter) -> None:
        answer = self._ask(wanted.pattern)
        self._connection.subscribe(wanted)
        why = self._await_answer(wanted.pattern, answer)
        if why is not None:
            self._unsubscribe(wanted.pattern, is_granted=False)
            raise BusError(f"{self._options.shown}: the broker refused the subscription to {wanted.pattern!r}: {why}")

    def _ask(self, pattern: str) -> "_Answer":
        answer = _Answer()
        with self._lock:
            self._questions.setdefault(pattern, []).append(answer)
        return answer

    def _await_answer(self, pattern: str, answer: "_Answer", timeout_s: float = ANSWER_S) -> str | None:
        """Wait for an answer, not without a connection; returns why it is a refusal.

        In the handler's thread, messages that come before it wait in the mailbox.
        """
        try:
            if not self._connection.is_connected or self._is_closed:
                return None
            with self._mailbox.lenient(self._connection.read_on):
                return answer.result(timeout_s)
        except TimeoutError:
            return f"no answer in {timeout_s:g} s"
        finally:
            with self._lock:
                waiting = self._questions.get(pattern, [])
                if answer in waiting:
                    waiting.remove(answer)
                if not waiting:
                    self._questions.pop(pattern, None)

    def _unsubscribe(self, pattern: str, *, is_granted: bool = True, is_last: bool = False) -> None:
        with self._lock:
            self._users[pattern] -= 1
            if self._users[pattern] > 0 and not is_last:
                return
            del self._users[pattern]
            if is_granted:  # under the lock: who subscribes again does so after it
                self._connection.unsubscribe(pattern)

    def declare(self, token: str) -> Callable[[], None]:
        """Show a token to all others; returns a function to end it. BusError if there are too many."""
        self._own.add(token)
        self._connection.show(self._presence)
        return cache(lambda: self._withdraw(token))

    def _withdraw(self, token: str) -> None:
        self._own.remove(token)
        self._connection.show(self._presence)

    def watch(self, pattern: str) -> Callable[[], None]:
        self._mailbox.call(lambda: self._report(self._others.watch(pattern)))
        # QoS 0: a broker does not collect the beats of others for a session while its process is away
        end = self._use(Filter(self._tokens_at + MQTT.one, 0, kept=True, own=True), is_refreshed=False)
        self._connection.show(self._presence)

        def unwatch() -> None:
            end()
            self._mailbox.call(lambda: self._others.unwatch(pattern))

        return cache(unwatch)

    def counters(self) -> Mapping[str, int]:
        with self._lock:
            counts = self._counts + self._machine.counts + Counter(dict(self._failures))
        counts["bad_tokens"] = self._others.bad
        counts["receive_dropped"] = self._mailbox.dropped
        return +counts

    def close(self) -> None:
        """Send what waits, for a short time; then stop. What could not be sent is told.

        Groups are left first, unless the broker keeps the session, and with it this client's part in them.
        """
        is_session_kept = self._options.session is not None and self._options.session_expires_s > 0
        if not is_session_kept:
            self._end_shares()
        with self._lock:
            if self._is_closed:
                return
            self._is_closed = True
        self._answer_all()
        self.stop_handling()
        self._connection.close(keeps_session=is_session_kept)
        for item in self._connection.left_over():
            self._drop(item[0], "the transport was closed")
        self._mailbox.close(ANSWER_S)

    # -- what the connection tells -------------------------------------------------------------------------------------

    def _told(self, notice: Notice) -> None:
        match notice:
            case Undelivered(source, why):
                self._drop(source, why)
            case Granted(pattern, _):
                self._answer(pattern, None)
            case Ended(pattern):
                self._mailbox.call(lambda: self._answer(_end_of(pattern), None))
            case Refused(pattern, why):
                self._count("subscriptions_refused")
                self._answer(pattern, why)
            case Connected():
                self._connected()
            case _:
                pass

    def _answer(self, pattern: str, why: str | None) -> None:
        with self._lock:
            if waiting := self._questions.get(pattern):  # else it was asked again after a reconnect
                waiting.pop(0).set_result(why)

    def _answer_all(self) -> None:
        """Let nobody wait: there is no connection."""
        with self._lock:
            questions, self._questions = self._questions, {}
        for answer in chain.from_iterable(questions.values()):
            answer.set_result(None)

    def _connected(self) -> None:
        with self._lock:
            self._counts["connections"] += 1
            self._is_up = True
        if self._counts["connections"] > 1:
            self._mailbox.call(self._others.doubt)
        elif self._machine.limits.is_session_kept:
            self._pending.begin(time.monotonic())  # before any message: those come behind CONNACK
        self._mailbox.call(lambda: self._receiver.connected(True))

    def _lost(self, why: str) -> None:
        """The connection was lost, or could not be made again."""
        with self._lock:
            was_up, self._is_up = self._is_up, False
            self._counts["connections_lost" if was_up else "connections_failed"] += 1
        self._answer_all()
        if was_up:
            self._mailbox.call(lambda: self._receiver.connected(False))

    def _drop(self, source: object, why: str) -> None:
        """Tell that a packet was not sent; in the handler's thread, and many of a key at once."""
        if not isinstance(source, MqttSender):
            return
        with self._lock:
            is_first = not self._drops
            self._drops[source.key, why] += 1
            self._counts[f"dropped: {why}"] += 1
        if is_first:
            self._mailbox.call(self._tell_drops)

    # -- tokens --------------------------------------------------------------------------------------------------------

    def _presence(self) -> bytes:
        """The packet that shows the own tokens; it counts for three beats, and for as long as a session is kept."""
        lease_s = math.ceil(3 * self._beat_s) + (self._options.session_expires_s if self._beat_s else 0)
        return self._own.packet(self._own_topic, min(lease_s, 0xFFFF_FFFF))

    @property
    def _beat_s(self) -> float:
        """How often the own tokens are shown."""
        return self._machine.limits.keep_alive_s / 2

    def _tokens_arrived(self, message: Message) -> None:
        if message[0] == self._own_topic:
            self._report(self._others.heard_self(time.monotonic(), self._beat_s))
        else:
            self._report(self._others.heard(message[0].removeprefix(self._tokens_at), message[2], message[1]))

    def _report(self, changes: Changes) -> None:
        for token, is_present in changes:
            try:
                self._receiver.token(token, is_present)
            except Exception as problem:  # the other tokens are told all the same
                self._failures.note("mqtt", problem)

    # -- the handler's thread ------------------------------------------------------------------------------------------

    def _dispatch(self) -> None:
        mailbox, handle = self._mailbox, self._handle_late if self._acknowledges_late else self._handle
        while (batch := mailbox.take(1.0 if self._pending.is_active else None)) is not None:
            for item in batch:
                try:
                    if isinstance(item, tuple):
                        handle(item)
                    else:
                        item()
                except Exception as problem:  # what comes behind it is handled all the same
                    self._failures.note("mqtt", problem)
            self._pending.expire(time.monotonic())
            if self._unacknowledged:
                self._acknowledge()
            if mailbox.is_paused and mailbox.may_read_on():
                self._connection.read_on()
        if self._handled is not None:
            self._handled.close()

    def _handle(self, message: Message) -> None:
        if message[0].startswith(self._tokens_at):
            self._tokens_arrived(message)
        else:
            self._receiver.packet(message[0], message[1], message[2])

    def _handle_late(self, message: Message) -> None:
        """Handle a message of a session, unless it waits for its subscription, and acknowledge it then."""
        now = time.monotonic()
        if self._is_stopping:
            return
        is_pending = self._pending.is_active and not message[0].startswith(self._tokens_at)
        if is_pending and self._pending.hold(message, now):
            return
        if self._unacknowledged and now - self._acknowledged_at > ACKNOWLEDGE_S:
            self._acknowledge()
        self._handling_since = now
        try:
            if self._handled is not None and self._handled.had(message):
                self._count("handled_by_an_earlier_process")
            else:
                self._handle(message)
        finally:
            self._handling_since = None
            if message[3] and not self._is_abandoned:
                if self._handled is not None:
                    self._handled.add(message)
                self._unacknowledged.append(message)

    def _acknowledge(self) -> None:
        self._acknowledged_at = time.monotonic()
        messages, self._unacknowledged = self._unacknowledged, []
        self._connection.handled(messages)

    def _drop_pending(self, messages: list[Message]) -> None:
        if messages:
            self._count("unwanted_of_session", len(messages))
            self._connection.handled(messages)

    def _subscribed(self, pattern: str) -> None:
        """Handle messages of an earlier process's session that waited for this subscription."""
        for message in self._pending.subscribed(pattern, time.monotonic()):
            self._handle_late(message)

    def call(self, function: Callable[[], None]) -> None:
        """Call a function in the thread of the receiver, after the messages that wait."""
        self._mailbox.call(function)

    def stop_handling(self) -> None:
        """Leave the packets of a session that were not handled to the broker, for the next process.

        Waits for the packet that is being handled, for two seconds; if that is not enough, it comes again.
        """
        if not self._acknowledges_late or self._is_stopping:
            return
        self._is_stopping = True
        done = threading.Event()
        self._mailbox.call(self._acknowledge)
        self._mailbox.call(done.set)
        self._is_abandoned = self._mailbox.is_own_thread or not done.wait(LAST_S)

    @property
    def busy_s(self) -> float:
        """For how long the receiver has been handling one packet of a session."""
        since = self._handling_since
        return 0.0 if since is None else time.monotonic() - since

    def _count(self, name: str, count: int = 1) -> None:
        with self._lock:
            self._counts[name] += count

    def _tell_drops(self) -> None:
        with self._lock:
            drops, self._drops = self._drops, Counter()
        for (key, why), count in drops.items():
            self._receiver.dropped(key, count, why)


_Answer = Future[str | None]
"""An answer of the broker that somebody waits for: why it refuses what was asked, if it does."""


def _free_number(text: str, taken: Collection[int]) -> int:
    """Return a subscription identifier for a text, that of its digest if it is free."""
    number = int.from_bytes(hashlib.blake2b(text.encode(), digest_size=4).digest())
    while number % MAX_NUMBER + 1 in taken:
        number += 1
    return number % MAX_NUMBER + 1


def _end_of(pattern: str) -> str:
    return f"end of {pattern}"
