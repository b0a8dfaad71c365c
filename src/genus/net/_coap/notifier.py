"""`Notifier`: what a server sends to its observers, and what it knows of their wants. It runs in one thread."""

import asyncio
import time
from collections import Counter
from collections.abc import Callable, Sequence
from hashlib import sha256
from typing import Any

import msgspec
from aiocoap.numbers import codes

from genus.errors import GenusError
from genus.filters import Subscription
from genus.filters.internal import rebuild
from genus.filters.types import AllOf
from genus.model import Event
from genus.net._coap.endpoint import Endpoint
from genus.net._coap.inbox import Batch, Inbox, Observer, Session, Sessions
from genus.net._coap.shared_catalog import Refused, Resources, SharedCatalog, age_until, respond
from genus.net._coap.values import Notified, ObservationMark, Outgoing, etag_of, write_cbor, write_notified
from genus.net._envelope import Interest
from genus.net._link.presence import shown_text
from genus.targets.coap import QueryFilter

BLOCK = 1024
"""The bytes of a body that go in one datagram."""
FETCH_S = 10.0
"""How long a server waits for a client to fetch the rest of a large notification."""
TICK_S = 1.0
PROBE_S = 600.0
"""After so long without a sign of a client of Genus it is asked whether it is there."""
PLAIN_PROBE_S = 86_400.0
"""The same for a plain client, which gets the state again (RFC 7641, section 4.5)."""
MAX_INTERESTS_OBSERVERS = 1000
"""The largest number of clients that follow what others want."""


class Large(msgspec.Struct, frozen=True, eq=False):
    """A body of several blocks that an observer fetches, and whether it has."""

    body: bytes
    observer: Observer
    fetched: asyncio.Event


class Notifier:
    """State: the sessions of a server, and the tasks that send what waits in them.

    `local_interest` gives what the bus of the server itself wants.
    """

    def __init__(
        self,
        endpoint: Endpoint,
        shared: SharedCatalog,
        resources: Resources,
        counts: Counter[str],
        inbox: Inbox,
        local_interest: Callable[[], list[Interest]],
    ) -> None:
        self.sessions = Sessions(endpoint.options.capacity)
        self._endpoint, self._shared, self._resources = endpoint, shared, resources
        self._counts, self._inbox, self._local_interest = counts, inbox, local_interest
        self._serving: dict[Session, tuple[asyncio.Event, asyncio.Task[None]]] = {}
        """By session: what wakes the task that sends, and the task."""
        self._large: dict[tuple[Any, ...], Large] = {}
        self._interest_observers: dict[asyncio.Task[None], asyncio.Event] = {}
        self._ticker: asyncio.Task[None] | None = None

    def start(self) -> None:
        """Begin the regular work; in the thread of the endpoint."""
        self._ticker = asyncio.get_running_loop().create_task(self._tick())

    async def _tick(self) -> None:
        while True:
            await asyncio.sleep(TICK_S)
            for session in self.sessions.overdue(time.monotonic()):
                self._drop(session, "the receiver did not return within 30 s")
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
                self._tell_lost(session, [dropped], "the receiver takes too long")
            self._wake(session)

    def skip(self, outgoing: Outgoing) -> None:
        for session in self.sessions:
            session.skip(outgoing)

    def _wake(self, session: Session) -> None:
        if session in self._serving:
            self._serving[session][0].set()

    def _tell_lost(self, session: Session, lost: Sequence[Outgoing], reason: str) -> None:
        receiver = session.uid.hex() if session.uid is not None else ""
        self._counts["lost to observers"] += len(lost)
        for cls, count in Counter(type(each.event) for each in lost).items():
            self._inbox.unsent(cls, count, receiver, reason)

    # -- interest ----------------------------------------------------------------------------------------------------

    def interests(self, but: bytes | None = None) -> list[Interest]:
        """Return what observers want, but one of them."""
        found = []
        for session in [each for each in self.sessions if each.uid is None or each.uid != but]:
            who = session.uid.hex() if session.uid is not None else sha256(session.id).hexdigest()[:16]
            for one in session.observers.values():
                subscription = subscription_of(one.filter, self._shared)
                found.append(Interest(who, one.mark.origin.hex() or who, subscription, one.mark.hops))
        return found

    def read_interests(self, uid: bytes | None) -> Any:
        """Return what others than a client want: texts of subscriptions, each with who says so, its origin and hops."""
        interests = [*self.interests(uid), *self._local_interest()]
        rows = [
            [interest.speaker, interest.origin, shown_text(interest.subscription), interest.hops]
            for interest in interests
        ]
        return respond(write_cbor(rows), max_age=0)

    def observe_interest(self, send: Callable[[Any], None], remote: Any) -> Callable[[], None]:
        """Tell a client when what others want has changed; it then reads it. Returns a function that ends it."""
        if len(self._interest_observers) >= MAX_INTERESTS_OBSERVERS:
            raise Refused(codes.SERVICE_UNAVAILABLE, "too many observations")
        changed = asyncio.Event()
        task = asyncio.get_running_loop().create_task(self._tell_interest(changed, send, remote))
        self._interest_observers[task] = changed

        def end() -> None:
            task.cancel()
            self._interest_observers.pop(task, None)

        return end

    async def _tell_interest(self, changed: asyncio.Event, send: Callable[[Any], None], remote: Any) -> None:
        """Tell a client again only when it has acknowledged the last, however much changes meanwhile."""
        sequence = 0
        while True:
            changed.clear()
            sequence = (sequence + 1) % (1 << 24)
            send(respond(observe=sequence, transport_tuning=self._endpoint.tuning))
            if sequence > 1:
                await self._endpoint.acknowledged(remote)
            await changed.wait()

    def interest_changed(self) -> None:
        for changed in self._interest_observers.values():
            changed.set()
        self._inbox.interest_changed()

    # -- observations ------------------------------------------------------------------------------------------------

    def observe(
        self, code: int, mark: ObservationMark | None, send: Callable[[Any], None], request: Any
    ) -> Callable[[], None]:
        """Add an observation and answer it with the state; returns a function for when its client is gone."""
        query = tuple(request.opt.uri_query)
        asked = self._resources.ask(code, query, request.opt.accept)
        key = (request.remote.blockwise_key, tuple(request.opt.uri_path), query)
        observer = Observer(asked, send, request.remote, mark or ObservationMark(b"", 0), key)
        session = self.sessions.attach(mark, observer)
        if session is None:
            raise Refused(codes.SERVICE_UNAVAILABLE, "too many observations")
        session.alive_at = time.monotonic()
        if session not in self._serving:
            wake = asyncio.Event()
            self._serving[session] = wake, asyncio.get_running_loop().create_task(self._send_all(session, wake))
        send(self._first_answer(session, observer))
        self.interest_changed()
        self._wake(session)
        return lambda: self._gone(session, observer)

    def _first_answer(self, session: Session, observer: Observer) -> Any:
        """Return the answer to the registration: the state for plain clients, the session for those of Genus."""
        parts: dict[str, Any] = {"observe": observer.next_sequence(), "transport_tuning": self._endpoint.tuning}
        if session.uid is not None:
            return respond(b"\x80", own=write_notified(Notified(session.id, session.settled)), **parts)
        payload, max_age = self._resources.read(observer.filter)
        if len(payload) > BLOCK:
            asyncio.get_running_loop().call_later(FETCH_S, self._forget_large, self._keep_large(observer, payload))
        return _in_blocks(payload, max_age=max_age, **parts)

    def _keep_large(self, observer: Observer, body: bytes) -> Large:
        made = self._large[observer.key] = Large(body, observer, asyncio.Event())
        return made

    def _forget_large(self, large: Large | None) -> None:
        if large is not None and self._large.get(large.observer.key) is large:
            del self._large[large.observer.key]

    def end_observation(self, mark: ObservationMark) -> None:
        session = self.sessions.find(mark.uid)
        if session is not None and self.sessions.end(mark):
            if not session.observers:
                self._stop(session)
            self.interest_changed()

    def end_client(self, uid: bytes | None) -> None:
        session = self.sessions.find(uid)
        if session is not None:
            self._stop(session)
            self.interest_changed()

    def _gone(self, session: Session, observer: Observer) -> None:
        """The client of an observation is gone, or has renewed it."""
        session.detach(observer, time.monotonic())
        large = self._large.get(observer.key)
        if large is not None and large.observer is observer:
            self._forget_large(large)
        if session.uid is None:
            self._drop(session, "the receiver is gone")
        self._wake(session)

    def _drop(self, session: Session, reason: str) -> None:
        self._tell_lost(session, [entry.outgoing for entry in session.queue], reason)
        self._stop(session)
        self.interest_changed()

    def _stop(self, session: Session) -> None:
        self.sessions.drop(session)
        if session in self._serving:
            self._serving.pop(session)[1].cancel()

    # -- notifications -----------------------------------------------------------------------------------------------

    async def _send_all(self, session: Session, wake: asyncio.Event) -> None:
        """Send what waits in a session, each batch when the one before was acknowledged."""
        while True:
            await wake.wait()
            wake.clear()
            while (batch := session.take()) is not None:
                try:
                    await self._send(session, batch)
                except Exception:
                    self._counts["errors of the server"] += 1
                    self._endpoint.log.exception("a notification could not be sent")
                session.done(batch)

    async def _send(self, session: Session, batch: Batch) -> None:
        observer, events = batch.observer, [entry.outgoing for entry in batch.entries]
        body, parts = self._notification(session, batch, events)
        large = self._keep_large(observer, body) if len(body) > BLOCK else None
        assert observer.send is not None
        observer.send(_in_blocks(body, transport_tuning=self._endpoint.tuning, **parts))
        await self._endpoint.acknowledged(observer.remote)
        if large is not None and session.in_flight is batch:
            try:
                await asyncio.wait_for(large.fetched.wait(), FETCH_S)
            except TimeoutError:
                self._tell_lost(session, events, "the receiver did not fetch all blocks")
            finally:
                self._forget_large(large)
        if session.in_flight is batch:
            self._counts["notified"] += len(events)
            session.alive_at = time.monotonic()

    def _notification(self, session: Session, batch: Batch, events: Sequence[Outgoing]) -> tuple[bytes, dict[str, Any]]:
        """Return the body of a notification, and its options."""
        observer, own, max_age = batch.observer, None, None
        if session.uid is not None:
            own = write_notified(Notified(session.id, batch.entries[0].number, tuple(one.origin for one in events)))
            body = self._resources.body(observer.filter, events)
        else:
            body, max_age = self._plain_body(session, observer, events)
        if expiries := [one.expires_at for one in events if one.expires_at is not None]:
            max_age = age_until(min(expiries), time.time())
        return body, {"observe": observer.next_sequence(), "max_age": max_age, "own": own}

    def _plain_body(self, session: Session, observer: Observer, events: Sequence[Outgoing]) -> tuple[bytes, int | None]:
        """What a plain client is notified of: the event of one type, or the state of all below a super-resource."""
        if len(events) == 1 and self._resources.body(observer.filter, events) is events[0].attributes:
            return events[0].attributes, None
        self._counts["superseded"] += len(events) - 1 + len(session.queue)
        session.queue.clear()
        return self._resources.read(observer.filter)

    def large_block(self, request: Any) -> Any:
        """A further block of a notification that did not fit into one datagram; None if there is none."""
        block = request.opt.block2
        key = (request.remote.blockwise_key, tuple(request.opt.uri_path), tuple(request.opt.uri_query))
        large = self._large.get(key)
        if large is None or block.start >= len(large.body):
            return None
        whole = respond(large.body, etag=etag_of(large.body))
        part = whole._extract_block(block.block_number, block.size_exponent, BLOCK)
        if not part.opt.block2.more:
            large.fetched.set()
        return part

    # -- the end -----------------------------------------------------------------------------------------------------

    async def close(self, patience_s: float) -> None:
        """Send what waits, for a short time; then tell observers that the server ends."""
        until = time.monotonic() + patience_s
        while time.monotonic() < until and any(one.waiting and one.gone_at is None for one in self.sessions):
            await asyncio.sleep(0.005)
        for session in list(self.sessions):
            in_flight = session.in_flight.entries if session.in_flight else ()
            lost = [entry.outgoing for entry in (*session.queue, *in_flight)]
            self._tell_lost(session, lost, "the server was closed")
            session.queue.clear()
            session.in_flight = None
            for observer in list(session.observers.values()):
                if observer.send is not None:
                    observer.send(respond(b"the server is closing", None, code=codes.SERVICE_UNAVAILABLE))
            self._stop(session)
        if self._ticker is not None:
            self._ticker.cancel()


def _in_blocks(body: bytes, **parts: Any) -> Any:
    """Return a response, or the first block of it if it does not fit into one datagram."""
    if len(body) <= BLOCK:
        return respond(body, **parts)
    return respond(body, etag=etag_of(body), **parts)._extract_block(0, 6, BLOCK)


def subscription_of(filter: QueryFilter, shared: SharedCatalog) -> Subscription[Any]:
    """Return the subscription that a test was made of; one that cannot be said exactly is wider, never narrower."""
    types = _types_of(filter.code, shared)
    vector = shared.catalog.vector(filter.asked)
    where = " and ".join(f"({text})" for text in filter.texts) or None
    exact = filter.exact and len(types) == 1
    try:
        has, lacks = (vector.names_of(mask & (1 << len(vector)) - 1) for mask in (filter.has, filter.lacks))
        return rebuild(AllOf(types), exact=exact, has=has, lacks=lacks, where=where)
    except (GenusError, RecursionError):
        return rebuild(AllOf(types))


def _types_of(code: int, shared: SharedCatalog) -> tuple[type, ...]:
    """Return the types whose codes divide a code: what conforms to all of them is below it."""
    entries = shared.catalog.entries.values()
    exactly = [entry.name for entry in entries if entry.code == code]
    types = tuple(map(shared.class_of, exactly or [entry.name for entry in entries if code % entry.code == 0]))
    try:
        return rebuild(AllOf(types)).types if types else (Event,)
    except GenusError:  # types that exclude each other: nothing is below
        return (Event,)
