"""`Hub`: the state of a server: newest values, sessions of observers, and what is answered. It runs in one thread.

Requests come from `site`, which knows CoAP's messages; here they are codes, queries and bytes.
"""

import asyncio
import logging
import os
import time
from collections import Counter, OrderedDict
from collections.abc import Callable, Sequence
from hashlib import sha256
from typing import Any, TypeAlias

import msgspec
from aiocoap.numbers import codes

from genus.model import Event
from genus.net._coap.agreed import Agreement
from genus.net._coap.endpoint import Endpoint
from genus.net._coap.sessions import Batch, Observer, Outgoing, Session, Sessions
from genus.net._coap.wants import subscription_of
from genus.net._coap.wire import (
    CBOR,
    LINK_FORMAT,
    TEXT,
    Notified,
    ObservationMark,
    Unreadable,
    join_pairs,
    read_body,
    read_origins,
    write_cbor,
    write_notified,
)
from genus.net._envelope import MOST_HOPS, NUMBERS, Origin
from genus.net._relay import Want
from genus.targets.coap import QueryFilter, parse_path, path_of, read_query

log = logging.getLogger("genus.coap")

VERSION = 1
ONE_DATAGRAM = 1024
FETCH_S = 10.0
"""How long a server waits for a client to fetch the rest of a large notification."""
MOST_ORIGINS = 65_536
TICK_S = 1.0
SHOWN = 80
"""The most characters of a reason in a counter, and how many reasons are counted one by one."""
MOST_REASONS = 1000

Refusal: TypeAlias = tuple[Any, str]
"""The code of an error, and its reason."""


class Answer(msgspec.Struct, frozen=True):
    """A response, before it is a message of aiocoap."""

    code: int = int(codes.CONTENT)
    payload: bytes = b""
    format: int | None = None
    observe: int | None = None
    max_age: int | None = None
    etag: bytes | None = None
    own: bytes | None = None
    is_block: bool = False
    is_last: bool = False
    tuning: Any = None


class HubCalls(msgspec.Struct, frozen=True):
    """What a hub calls in its thread: with events that clients put, with losses, and when wants have changed."""

    receive: Callable[[Event, Origin], None]
    lost: Callable[[type[Event], int, str, str], None]
    wants_changed: Callable[[], None]
    own_wants: Callable[[], list[Want]]


class Hub:
    """State: a server."""

    def __init__(self, endpoint: Endpoint, agreement: Agreement, uid: bytes, calls: HubCalls) -> None:
        self.agreement, self.uid = agreement, uid
        self.largest = endpoint.options.largest
        self.must_protect = endpoint.options.credentials is not None
        self.epoch = os.urandom(8)
        self.sessions = Sessions(endpoint.options.capacity)
        self.counts: Counter[str] = Counter()
        self.announced: dict[int, None] = {}
        """Codes that have resources, though no value yet."""
        self._endpoint, self._calls = endpoint, calls
        self._newest: dict[int, Outgoing] = {}
        self._seen: OrderedDict[tuple[bytes, int], int] = OrderedDict()
        self._plain_numbers: Counter[bytes] = Counter()
        self._wakes: dict[Session, asyncio.Event] = {}
        self._tasks: dict[Session, asyncio.Task[None]] = {}
        self._large: dict[tuple[Any, ...], tuple[bytes, asyncio.Event]] = {}
        self._wants_observers: dict[Callable[[Answer], None], tuple[bytes | None, list[int]]] = {}
        self._ticker: asyncio.Task[None] | None = None

    def start(self) -> None:
        """Begin the regular work; in the thread of the endpoint."""
        self._ticker = asyncio.get_running_loop().create_task(self._tick())

    async def _tick(self) -> None:
        while True:
            await asyncio.sleep(TICK_S)
            for session in self.sessions.overdue(time.monotonic()):
                self._drop(session, "its receiver did not return")

    def refuse(self, reason: str) -> None:
        """Count a request that was refused."""
        name = f"refused: {reason[:SHOWN]}"
        self.counts[name if name in self.counts or len(self.counts) < MOST_REASONS else "refused: others"] += 1

    # -- events ------------------------------------------------------------------------------------------------------

    def outgoing(self, event: Event, origin: Origin) -> Outgoing:
        """An event as it is sent; EventError if it cannot be. In any thread."""
        writer = self.agreement.writer(type(event))
        tag, attributes = writer.write(event)
        expires_at = None if event.expires is None else event.expires.timestamp()
        return Outgoing(event, writer.code, tag, attributes, origin, expires_at)

    def publish(self, outgoing: Outgoing, sender: bytes | None = None) -> None:
        """Make an event the newest of its type, and send it to all observers but its sender."""
        self._newest[outgoing.code] = outgoing
        for session in list(self.sessions):
            if session.uid is not None and session.uid in (sender, outgoing.origin.uid):
                continue
            dropped = session.put(outgoing)
            if dropped is not None:
                self._tell_lost(session, [dropped], "the observer takes too long")
            self._wake(session)

    def _wake(self, session: Session) -> None:
        if session in self._wakes:
            self._wakes[session].set()

    def _is_new(self, origin: Origin, code: int) -> bool:
        """Whether an event was not put before; numbers of one origin and type grow."""
        key = (origin.uid, code)
        last = self._seen.get(key)
        if last is not None and not 0 < (origin.number - last) % NUMBERS < NUMBERS // 2:
            self.counts["duplicates"] += 1
            return False
        self._seen[key] = origin.number
        self._seen.move_to_end(key)
        if len(self._seen) > MOST_ORIGINS:
            self._seen.popitem(last=False)
        return True

    def _tell_lost(self, session: Session, lost: Sequence[Outgoing], reason: str) -> None:
        receiver = session.uid.hex() if session.uid is not None else ""
        for cls, count in Counter(type(each.event) for each in lost).items():
            self._calls.lost(cls, count, receiver, reason)

    # -- GET ---------------------------------------------------------------------------------------------------------

    def read(self, code: int, query: Sequence[str], accept: int | None) -> Answer | Refusal:
        """The newest values of all types below a code that pass a query."""
        asked = self._asked(code, query)
        if isinstance(asked, tuple):
            return asked
        if accept not in (None, CBOR):
            return codes.NOT_ACCEPTABLE, "values are CBOR (60)"
        payload, max_age = self._state(asked)
        return Answer(payload=payload, format=CBOR, max_age=max_age)

    def _asked(self, code: int, query: Sequence[str]) -> QueryFilter | Refusal:
        if not self.agreement.is_known(code):
            return codes.NOT_FOUND, "the code is that of no type in the catalog"
        asked = read_query(code, query, self.agreement.catalog)
        if isinstance(asked, str):
            return codes.BAD_REQUEST, asked
        vector = self.agreement.catalog.vector(asked.asked)
        if (asked.has | asked.lacks) >> len(vector):
            return codes.BAD_REQUEST, f"presence bits outside the {len(vector)} attributes of {vector.scope}"
        return asked

    def _state(self, asked: QueryFilter) -> tuple[bytes, int | None]:
        """The values that pass a test as a body, and for how long they are valid."""
        now = time.time()
        for code in [
            code for code, one in self._newest.items() if one.expires_at is not None and one.expires_at <= now
        ]:
            del self._newest[code]
        below = [one for code, one in self._newest.items() if code % asked.code == 0]
        found = [one for one in below if asked.accepts(one.code, one.tag, one.event)]
        expiries = [one.expires_at for one in found if one.expires_at is not None]
        return self._body(asked, found), max(0, int(min(expiries) - now)) if expiries else None

    def _body(self, asked: QueryFilter, events: Sequence[Outgoing]) -> bytes:
        """The map of one event if the resource is that of its type alone, else pairs."""
        if len(events) == 1 and events[0].code == asked.code and self.agreement.codes_below(asked.code) == [asked.code]:
            return events[0].attributes
        return join_pairs([(one.code, one.attributes) for one in events])

    # -- PUT ---------------------------------------------------------------------------------------------------------

    def put(self, code: int, query: Sequence[str], body: bytes, own: bytes | None, remote: str) -> Answer | Refusal:
        """Publish the events of a body, all or none: an event of the code's type, or pairs of types below it."""
        if query:
            return codes.BAD_REQUEST, "events are put without a query"
        if not self.agreement.is_known(code):
            return codes.NOT_FOUND, "the code is that of no type in the catalog"
        given = read_body(code, body)
        if isinstance(given, Unreadable):
            return codes.BAD_REQUEST, given.reason
        events = self._read_one(code, given) if isinstance(given, dict) else self._read_pairs(given)
        if isinstance(events, tuple):
            return events
        origins = self._origins(events, own, remote)
        if origins is None:
            return codes.BAD_REQUEST, "the option of Genus does not fit the body"
        for event, origin in zip(events, origins[1], strict=True):
            self._take(event, origin, origins[0])
        return Answer(int(codes.CHANGED))

    def _read_one(self, code: int, attributes: dict[Any, Any]) -> list[Event] | Refusal:
        """The event of a type; for a code that no event type has, those of all types below that have resources."""
        if self.agreement.type_of(code) is not None:
            return self._read_pairs([(code, attributes)])
        present = [each for each in self.agreement.codes_below(code) if each in self.announced or each in self._newest]
        read = [self._read_pairs([(each, attributes)]) for each in present]
        events = [event for found in read if isinstance(found, list) for event in found]
        return events or (codes.BAD_REQUEST, "no resource below takes these attributes")

    def _read_pairs(self, pairs: Sequence[tuple[int, dict[Any, Any]]]) -> list[Event] | Refusal:
        events = []
        for code, attributes in pairs:
            reader = self.agreement.reader(code)
            if reader is None:
                return codes.NOT_FOUND, "no event type of the catalog has this code"
            event = reader.read(attributes)
            if isinstance(event, Unreadable):
                return codes.BAD_REQUEST, event.reason
            events.append(event)
        return events

    def _origins(
        self, events: Sequence[Event], own: bytes | None, remote: str
    ) -> tuple[bytes, Sequence[Origin]] | None:
        """Sender and origins of events: what a client of Genus says, or the address of a plain one, and a number."""
        if own is not None:
            given = read_origins(own)
            return given if given is not None and len(given[1]) == len(events) else None
        uid = sha256(self.epoch + remote.encode()).digest()[:8]
        found = []
        for _ in events:
            self._plain_numbers[uid] += 1
            found.append(Origin(uid, self._plain_numbers[uid] % NUMBERS))
        return uid, found

    def _take(self, event: Event, origin: Origin, sender: bytes) -> None:
        outgoing = self.outgoing(event, origin)
        if origin.hops > MOST_HOPS:
            self.refuse(f"more than {MOST_HOPS} hops")
        elif origin.uid != self.uid and self._is_new(origin, outgoing.code):
            self.counts["received"] += 1
            self.publish(outgoing, sender)
            self._calls.receive(event, origin)

    # -- discovery, names, catalog -----------------------------------------------------------------------------------

    def discover(self, query: Sequence[str]) -> Answer | Refusal:
        """The resources that there are, as links; `is` lists those whose code a code divides."""
        present = [code for code in self.agreement.codes_below(1) if code in self._newest or code in self.announced]
        found = self._select([(code, self.agreement.type_of(code) or "") for code in present], query)
        if isinstance(found, tuple):
            return found
        return Answer(payload=",".join(f"</{path_of(code)}>" for code, _ in found).encode(), format=LINK_FORMAT)

    def look_up(self, query: Sequence[str], base: str) -> Answer | Refusal:
        """All types and kinds of the catalog with their names and resources."""
        entries = [(entry.code, entry.name) for entry in self.agreement.catalog.entries.values()]
        found = self._select(entries, query)
        if isinstance(found, tuple):
            return found
        links = [f'<{base}/{path_of(code)}>;rt="{name}";ct={CBOR};obs' for code, name in found]
        return Answer(payload=",".join(links).encode(), format=LINK_FORMAT)

    def _select(self, entries: list[tuple[int, str]], query: Sequence[str]) -> list[tuple[int, str]] | Refusal:
        """Those of some resources, by code and name, that a query asks for (RFC 6690, section 4.1)."""
        for part in query:
            name, _, value = part.partition("=")
            if name == "is":
                code = parse_path(value)
                if code is None:
                    return codes.BAD_REQUEST, "is= is no code in base64url"
                entries = [each for each in entries if each[0] % code == 0]
            else:
                entries = [each for each in entries if _has_attribute(each, name, value)]
        return entries

    def describe(self, uid: bytes | None) -> Answer:
        """The state of the server, and what it knows of a client."""
        session = self.sessions.find(uid)
        attached = 0 if session is None else sum(one.send is not None for one in session.observers.values())
        known = session.id if session is not None else b""
        state = {0: VERSION, 1: self.epoch, 2: self.agreement.digest, 3: attached, 4: known, 5: self.uid}
        return Answer(payload=write_cbor(state), format=CBOR, max_age=0)

    def read_catalog(self) -> Answer:
        """The text of the catalog."""
        return Answer(payload=self.agreement.catalog.text().encode(), format=TEXT, etag=self.agreement.digest)

    def add_types(self, body: bytes) -> Answer | Refusal:
        """Add the types of a client to the catalog."""
        try:
            text = body.decode()
        except UnicodeDecodeError:
            return codes.BAD_REQUEST, "no text of a catalog"
        problem = self.agreement.merge(text)
        return Answer(int(codes.CHANGED)) if problem is None else (codes.CONFLICT, problem)

    # -- wants -------------------------------------------------------------------------------------------------------

    def wants(self, but: bytes | None = None) -> list[Want]:
        """What observers want, but one of them."""
        found = []
        for session in self.sessions:
            speaker = session.uid or b""
            for one in session.observers.values():
                if session.uid is None or session.uid != but:
                    who = speaker.hex() or sha256(session.id).hexdigest()[:16]
                    subscription = subscription_of(one.filter, self.agreement.catalog)
                    found.append(Want(who, one.mark.origin.hex() or who, subscription, one.mark.hops))
        return found

    def read_wants(self, uid: bytes | None) -> Answer:
        """What others than a client want: texts of subscriptions, each with who says so, its origin and hops."""
        wants = [*self.wants(uid), *self._calls.own_wants()]
        rows = [[want.speaker, want.origin, str(want.subscription), want.hops] for want in wants]
        return Answer(payload=write_cbor(rows), format=CBOR, max_age=0)

    def observe_wants(self, uid: bytes | None, send: Callable[[Answer], None]) -> Callable[[], None]:
        """Tell a client of each change of what others want; it then reads it."""
        self._wants_observers[send] = (uid, [1])
        send(Answer(format=CBOR, observe=1, tuning=self._endpoint.tuning))
        return lambda: self._wants_observers.pop(send, None) and None

    def wants_changed(self) -> None:
        """What is wanted here has changed."""
        for send, (_, sequence) in list(self._wants_observers.items()):
            sequence[0] = (sequence[0] + 1) % (1 << 24)
            send(Answer(format=CBOR, observe=sequence[0], tuning=self._endpoint.tuning))
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
        asked = self._asked(code, query)
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
        self._serve(session)
        send(self._first_answer(session, observer[0]))
        self.wants_changed()
        self._wake(session)
        return lambda: self._gone(session, observer[0])

    def _first_answer(self, session: Session, observer: Observer) -> Answer:
        """The answer to the registration: the state for plain clients, the session for those of Genus."""
        observe, tuning = observer.next_sequence(), self._endpoint.tuning
        if session.uid is not None:
            own = write_notified(Notified(session.id, session.number))
            return Answer(payload=b"\x80", format=CBOR, observe=observe, own=own, tuning=tuning)
        payload, max_age = self._state(observer.filter)
        is_block = len(payload) > ONE_DATAGRAM
        if is_block:
            self._large[observer.key] = (payload, asyncio.Event())
        return Answer(payload=payload, format=CBOR, observe=observe, max_age=max_age, is_block=is_block, tuning=tuning)

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
                    self.counts["errors of the server"] += 1
                    log.exception("a notification could not be sent")
                session.done(batch)

    async def _send(self, session: Session, batch: Batch) -> None:
        observer, entries = batch.observer, batch.entries
        answer, body = self._notification(session, batch)
        if answer.is_block:
            self._large[observer.key] = (body, asyncio.Event())
        assert observer.send is not None
        observer.send(answer)
        await self._endpoint.acknowledged(observer.remote)
        if answer.is_block and session.in_flight is batch:
            await self._fetched(session, observer, [entry.outgoing for entry in entries])
        if session.in_flight is batch:
            self.counts["notified"] += len(entries)

    async def _fetched(self, session: Session, observer: Observer, sent: Sequence[Outgoing]) -> None:
        """Wait until a client has fetched the rest of a large notification."""
        try:
            await asyncio.wait_for(self._large[observer.key][1].wait(), FETCH_S)
        except TimeoutError:
            self._tell_lost(session, sent, "its receiver did not fetch all blocks")
        finally:
            self._large.pop(observer.key, None)

    def _notification(self, session: Session, batch: Batch) -> tuple[Answer, bytes]:
        events = [entry.outgoing for entry in batch.entries]
        observer, own, max_age = batch.observer, None, None
        if session.uid is not None:
            origins = tuple(one.origin for one in events)
            own = write_notified(Notified(session.id, batch.entries[0].number, origins))
            body = self._body(observer.filter, events)
        else:
            body, max_age = self._plain_body(session, observer, events)
        if expiries := [one.expires_at for one in events if one.expires_at is not None]:
            max_age = max(0, int(min(expiries) - time.time()))
        is_block = len(body) > ONE_DATAGRAM
        etag = sha256(body).digest()[:4] if is_block else None
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
        if len(events) == 1 and self._body(observer.filter, events) is events[0].attributes:
            return events[0].attributes, None
        self.counts["superseded"] += len(events) - 1 + len(session.queue)
        session.queue.clear()
        return self._state(observer.filter)

    def large_body(self, asked: tuple[Any, ...]) -> bytes | None:
        """The body of a large notification that a client fetches; None if there is none."""
        found = self._large.get(asked)
        return None if found is None else found[0]

    def large_fetched(self, asked: tuple[Any, ...]) -> None:
        """A client has fetched the last block."""
        if asked in self._large:
            self._large[asked][1].set()

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


def _has_attribute(entry: tuple[int, str], name: str, value: str) -> bool:
    """Whether a link has an attribute with a value, or with one that begins so."""
    code, type_ = entry
    have = {"rt": type_, "ct": str(CBOR), "href": f"/{path_of(code)}"}.get(name)
    if have is None:
        return False
    return have.startswith(value[:-1]) if value.endswith("*") else have == value
