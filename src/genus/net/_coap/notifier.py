"""`Notifier`: what a server sends to its observers, and what it knows of their wants. It runs in one thread."""

import asyncio
import logging
import time
from collections import Counter
from collections.abc import Callable, Sequence
from hashlib import sha256
from typing import Any

import msgspec
from aiocoap.numbers import codes

from genus.model import Event
from genus.net._coap.agreed import Agreement
from genus.net._coap.answers import Answer, Refusal
from genus.net._coap.endpoint import Endpoint
from genus.net._coap.newest import NewestValues, age_until
from genus.net._coap.sessions import Batch, Observer, Outgoing, Session, Sessions
from genus.net._coap.wants import subscription_of
from genus.net._coap.wants_observer import MOST_WANTS_OBSERVERS, WantsObserver
from genus.net._coap.wire import CBOR, Notified, ObservationMark, etag_of, write_cbor, write_notified
from genus.net._envelope import Origin
from genus.net._relay import Want

log = logging.getLogger("genus.coap")

ONE_DATAGRAM = 1024
FETCH_S = 10.0
"""How long a server waits for a client to fetch the rest of a large notification."""
TICK_S = 1.0
PROBE_S = 600.0
"""After so long without a sign of a client of Genus it is asked whether it is there."""
PLAIN_PROBE_S = 86_400.0
"""The same for a plain client, which gets the state again (RFC 7641, section 4.5)."""


class HubCalls(msgspec.Struct, frozen=True):
    """What a hub calls in its thread: with events that clients put, with losses, and when wants have changed."""

    receive: Callable[[Event, Origin], None]
    lost: Callable[[type[Event], int, str, str], None]
    wants_changed: Callable[[], None]
    own_wants: Callable[[], list[Want]]


class Large(msgspec.Struct, frozen=True, eq=False):
    """A body of several blocks that an observer fetches, and whether it has."""

    body: bytes
    observer: Observer
    fetched: asyncio.Event


class Notifier:
    """State: the sessions of a server, and the tasks that send what waits in them."""

    def __init__(
        self, endpoint: Endpoint, agreement: Agreement, values: NewestValues, counts: Counter[str], calls: HubCalls
    ) -> None:
        self.sessions = Sessions(endpoint.options.capacity)
        self._endpoint, self._agreement, self._values = endpoint, agreement, values
        self._counts, self._calls = counts, calls
        self._wakes: dict[Session, asyncio.Event] = {}
        self._tasks: dict[Session, asyncio.Task[None]] = {}
        self._large: dict[tuple[Any, ...], Large] = {}
        self._wants_observers: dict[WantsObserver, None] = {}
        self._ticker: asyncio.Task[None] | None = None

    def start(self) -> None:
        """Begin the regular work; in the thread of the endpoint."""
        self._ticker = asyncio.get_running_loop().create_task(self._tick())

    async def _tick(self) -> None:
        while True:
            await asyncio.sleep(TICK_S)
            for session in self.sessions.overdue(time.monotonic()):
                self._drop(session, "its receiver did not return")
            for session in list(self.sessions):
                self._probe(session, time.monotonic())

    def _probe(self, session: Session, now: float) -> None:
        """Send a notification without events to a client that was silent for long; one that is gone is found so."""
        is_due = now - session.alive_at >= (PLAIN_PROBE_S if session.uid is None else PROBE_S)
        observer = next((one for one in session.observers.values() if one.send is not None), None)
        if is_due and observer is not None and observer.send is not None and not session.waiting:
            session.alive_at = now
            observer.send(self._first_answer(session, observer))
            self._counts["silent clients that were asked"] += 1

    def notify(self, outgoing: Outgoing, sender: bytes | None) -> None:
        """Send an event to all observers but its sender and its origin."""
        for session in list(self.sessions):
            if session.uid is not None and session.uid in (sender, outgoing.origin.uid):
                continue
            dropped = session.put(outgoing)
            if dropped is not None:
                self._tell_lost(session, [dropped], "the observer takes too long")
            self._wake(session)

    def skip(self, outgoing: Outgoing) -> None:
        """Let observers miss an event that cannot be sent."""
        for session in self.sessions:
            session.skip(outgoing)

    def _wake(self, session: Session) -> None:
        if session in self._wakes:
            self._wakes[session].set()

    def _tell_lost(self, session: Session, lost: Sequence[Outgoing], reason: str) -> None:
        receiver = session.uid.hex() if session.uid is not None else ""
        for cls, count in Counter(type(each.event) for each in lost).items():
            self._calls.lost(cls, count, receiver, reason)

    # -- wants -------------------------------------------------------------------------------------------------------

    def wants(self, but: bytes | None = None) -> list[Want]:
        """What observers want, but one of them."""
        found = []
        for session in self.sessions:
            speaker = session.uid or b""
            for one in session.observers.values():
                if session.uid is None or session.uid != but:
                    who = speaker.hex() or sha256(session.id).hexdigest()[:16]
                    subscription = subscription_of(one.filter, self._agreement)
                    found.append(Want(who, one.mark.origin.hex() or who, subscription, one.mark.hops))
        return found

    def read_wants(self, uid: bytes | None) -> Answer:
        """What others than a client want: texts of subscriptions, each with who says so, its origin and hops."""
        wants = [*self.wants(uid), *self._calls.own_wants()]
        rows = [[want.speaker, want.origin, str(want.subscription), want.hops] for want in wants]
        return Answer(payload=write_cbor(rows), format=CBOR, max_age=0)

    def observe_wants(self, send: Callable[[Answer], None], remote: Any) -> Callable[[], None] | Refusal:
        """Tell a client when what others want has changed; it then reads it."""
        if len(self._wants_observers) >= MOST_WANTS_OBSERVERS:
            return codes.SERVICE_UNAVAILABLE, "too many observations"
        made = WantsObserver(send, remote, self._endpoint)
        self._wants_observers[made] = None

        def end() -> None:
            made.stop()
            self._wants_observers.pop(made, None)

        return end

    def wants_changed(self) -> None:
        """What is wanted here has changed."""
        for observer in self._wants_observers:
            observer.changed()
        self._calls.wants_changed()

    # -- observations ------------------------------------------------------------------------------------------------

    def observe(
        self,
        code: int,
        query: Sequence[str],
        mark: ObservationMark | None,
        send: Callable[[Answer], None],
        request: Any,
    ) -> Callable[[], None] | Refusal:
        """Add an observation and answer it with the state; returns a function for when its client is gone."""
        asked = self._values.ask(code, query)
        if isinstance(asked, tuple):
            return asked
        if request.opt.accept not in (None, CBOR):
            return codes.NOT_ACCEPTABLE, "values are CBOR (60)"
        observer: list[Observer] = []

        def make(mark: ObservationMark) -> Observer:
            observer.append(Observer(asked, send, request.remote, mark))
            observer[0].key = (request.remote.blockwise_key, tuple(request.opt.uri_path), tuple(query))
            return observer[0]

        session = self.sessions.attach(mark, make)
        if session is None:
            return codes.SERVICE_UNAVAILABLE, "too many observations"
        session.alive_at = time.monotonic()
        self._serve(session)
        send(self._first_answer(session, observer[0]))
        self.wants_changed()
        self._wake(session)
        return lambda: self._gone(session, observer[0])

    def _first_answer(self, session: Session, observer: Observer) -> Answer:
        """The answer to the registration: the state for plain clients, the session for those of Genus."""
        observe, tuning = observer.next_sequence(), self._endpoint.tuning
        if session.uid is not None:
            own = write_notified(Notified(session.id, session.settled))
            return Answer(payload=b"\x80", format=CBOR, observe=observe, own=own, tuning=tuning)
        payload, max_age = self._values.read(observer.filter)
        made = Answer(payload=payload, format=CBOR, observe=observe, max_age=max_age, tuning=tuning)
        if len(payload) <= ONE_DATAGRAM:
            return made
        large = self._keep_large(observer, payload)
        asyncio.get_running_loop().call_later(FETCH_S, self._forget_large, large)
        return msgspec.structs.replace(made, etag=etag_of(payload), is_block=True)

    def _keep_large(self, observer: Observer, body: bytes) -> Large:
        made = self._large[observer.key] = Large(body, observer, asyncio.Event())
        return made

    def _forget_large(self, large: Large) -> None:
        if self._large.get(large.observer.key) is large:
            del self._large[large.observer.key]

    def end_observation(self, mark: ObservationMark) -> None:
        """A client of Genus ends an observation."""
        session = self.sessions.find(mark.uid)
        if self.sessions.end(mark):
            if session is not None and not session.observers:
                self._stop(session)
            self.wants_changed()

    def end_client(self, uid: bytes | None) -> Answer:
        """A client of Genus ends."""
        session = self.sessions.find(uid)
        if session is not None:
            self.sessions.drop(session)
            self._stop(session)
            self.wants_changed()
        return Answer(int(codes.CHANGED))

    def _gone(self, session: Session, observer: Observer) -> None:
        """The client of an observation is gone, or has renewed it."""
        session.detach(observer, time.monotonic())
        large = self._large.get(observer.key)
        if large is not None and large.observer is observer:
            self._forget_large(large)
        if session.uid is None:
            self._drop(session, "its receiver is gone")
        self._wake(session)

    def _drop(self, session: Session, reason: str) -> None:
        self._tell_lost(session, [entry.outgoing for entry in session.queue], reason)
        self.sessions.drop(session)
        self._stop(session)
        self.wants_changed()

    def _serve(self, session: Session) -> None:
        if session not in self._tasks:
            self._wakes[session] = asyncio.Event()
            self._tasks[session] = asyncio.get_running_loop().create_task(self._send_all(session))

    def _stop(self, session: Session) -> None:
        self._wakes.pop(session, None)
        task = self._tasks.pop(session, None)
        if task is not None:
            task.cancel()

    async def _send_all(self, session: Session) -> None:
        """Send what waits in a session, each batch when the one before was acknowledged."""
        wake = self._wakes[session]
        while True:
            await wake.wait()
            wake.clear()
            while (batch := session.take()) is not None:
                try:
                    await self._send(session, batch)
                except Exception:
                    self._counts["errors of the server"] += 1
                    log.exception("a notification could not be sent")
                session.done(batch)

    async def _send(self, session: Session, batch: Batch) -> None:
        observer, entries = batch.observer, batch.entries
        answer, body = self._notification(session, batch)
        large = self._keep_large(observer, body) if answer.is_block else None
        assert observer.send is not None
        observer.send(answer)
        await self._endpoint.acknowledged(observer.remote)
        if large is not None and session.in_flight is batch:
            await self._fetched(session, large, [entry.outgoing for entry in entries])
        if session.in_flight is batch:
            self._counts["notified"] += len(entries)
            session.alive_at = time.monotonic()

    async def _fetched(self, session: Session, large: Large, sent: Sequence[Outgoing]) -> None:
        """Wait until a client has fetched the rest of a large notification."""
        try:
            await asyncio.wait_for(large.fetched.wait(), FETCH_S)
        except TimeoutError:
            self._tell_lost(session, sent, "its receiver did not fetch all blocks")
        finally:
            self._forget_large(large)

    def _notification(self, session: Session, batch: Batch) -> tuple[Answer, bytes]:
        events = [entry.outgoing for entry in batch.entries]
        observer, own, max_age = batch.observer, None, None
        if session.uid is not None:
            origins = tuple(one.origin for one in events)
            own = write_notified(Notified(session.id, batch.entries[0].number, origins))
            body = self._values.body(observer.filter, events)
        else:
            body, max_age = self._plain_body(session, observer, events)
        if expiries := [one.expires_at for one in events if one.expires_at is not None]:
            max_age = age_until(min(expiries), time.time())
        is_block = len(body) > ONE_DATAGRAM
        etag = etag_of(body) if is_block else None
        observe, tuning = observer.next_sequence(), self._endpoint.tuning
        answer = Answer(
            payload=body,
            format=CBOR,
            observe=observe,
            max_age=max_age,
            etag=etag,
            own=own,
            is_block=is_block,
            tuning=tuning,
        )
        return answer, body

    def _plain_body(self, session: Session, observer: Observer, events: Sequence[Outgoing]) -> tuple[bytes, int | None]:
        """What a plain client is notified of: the event of one type, or the state of all below a super-resource."""
        if len(events) == 1 and self._values.body(observer.filter, events) is events[0].attributes:
            return events[0].attributes, None
        self._counts["superseded"] += len(events) - 1 + len(session.queue)
        session.queue.clear()
        return self._values.read(observer.filter)

    def large_body(self, asked: tuple[Any, ...]) -> bytes | None:
        """The body of a large notification that a client fetches; None if there is none."""
        found = self._large.get(asked)
        return None if found is None else found.body

    def large_fetched(self, asked: tuple[Any, ...]) -> None:
        """A client has fetched the last block."""
        if asked in self._large:
            self._large[asked].fetched.set()

    # -- the end -----------------------------------------------------------------------------------------------------

    async def close(self, patience_s: float) -> None:
        """Send what waits, for a short time; then tell observers that the server ends."""
        until = time.monotonic() + patience_s
        while time.monotonic() < until and any(one.waiting and one.gone_at is None for one in self.sessions):
            await asyncio.sleep(0.005)
        for session in list(self.sessions):
            lost = [entry.outgoing for entry in session.queue]
            lost += [entry.outgoing for entry in session.in_flight.entries] if session.in_flight else []
            self._tell_lost(session, lost, "the server was closed")
            self._stop(session)
            for observer in list(session.observers.values()):
                if observer.send is not None:
                    end = Answer(int(codes.SERVICE_UNAVAILABLE), b"the server ends", is_last=True)
                    observer.send(end)
        if self._ticker is not None:
            self._ticker.cancel()
