"""`Hub`: a server: what is answered to requests, and what happens to events that are put. It runs in one thread.

Requests come from `site`, which knows CoAP's messages; here they are codes, queries and bytes.
"""

import os
import time
from collections import Counter
from collections.abc import Sequence
from hashlib import sha256
from typing import Any

from aiocoap.numbers import codes

from genus.model import Event
from genus.net._coap.agreed import Agreement
from genus.net._coap.answers import Answer, Directory, Refusal
from genus.net._coap.endpoint import Endpoint
from genus.net._coap.newest import NewestValues
from genus.net._coap.notifier import HubCalls, Notifier
from genus.net._coap.seen import SeenEvents
from genus.net._coap.sessions import Outgoing
from genus.net._coap.wire import CBOR, EPOCH_BYTES, TEXT, Put, Unreadable, read_body, read_put, write_cbor
from genus.net._envelope import MOST_HOPS, NUMBERS, Origin

VERSION = 1
SHOWN = 80
"""The most characters of a reason in a counter, and how many reasons are counted one by one."""
MOST_REASONS = 1000


class Hub:
    """State: a server."""

    def __init__(self, endpoint: Endpoint, agreement: Agreement, uid: bytes, calls: HubCalls) -> None:
        self.agreement, self.uid = agreement, uid
        self.largest = endpoint.options.largest
        self.must_protect = endpoint.options.credentials is not None
        self.epoch = os.urandom(8)
        self.is_closing = False
        """Whether no more events are taken: clients keep theirs for the next server."""
        self.counts: Counter[str] = Counter()
        self.values = NewestValues(agreement)
        self.directory = Directory(agreement, self.values.is_present)
        self.notifier = Notifier(endpoint, agreement, self.values, self.counts, calls)
        self._calls = calls
        self._seen = SeenEvents()
        self._plain_numbers = 0

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
        self.values.put(outgoing)
        self.notifier.notify(outgoing, sender)

    # -- GET ---------------------------------------------------------------------------------------------------------

    def read(self, code: int, query: Sequence[str], accept: int | None) -> Answer | Refusal:
        """The newest values of all types below a code that pass a query."""
        asked = self.values.ask(code, query)
        if isinstance(asked, tuple):
            return asked
        if accept not in (None, CBOR):
            return codes.NOT_ACCEPTABLE, "values are CBOR (60)"
        payload, max_age = self.values.read(asked)
        return Answer(payload=payload, format=CBOR, max_age=max_age)

    # -- PUT ---------------------------------------------------------------------------------------------------------

    def put(self, code: int, query: Sequence[str], body: bytes, own: bytes | None, remote: str) -> Answer | Refusal:
        """Publish the events of a body, all or none: an event of the code's type, or pairs of types below it."""
        if self.is_closing:
            return codes.SERVICE_UNAVAILABLE, "the server ends"
        given_by = None if own is None else read_put(own)
        if own is not None and given_by is None:
            return codes.BAD_REQUEST, "the option of Genus is damaged"
        if given_by is not None and not self.is_meant(given_by.epoch):
            return codes.PRECONDITION_FAILED, "this is another server than before"
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
        if given_by is None:
            given_by = self._plain_put(len(events), remote)
        if len(given_by.origins) != len(events):
            return codes.BAD_REQUEST, "the option of Genus does not fit the body"
        for event, origin in zip(events, given_by.origins, strict=True):
            self._take(event, origin, given_by.sender)
        return Answer(int(codes.CHANGED))

    def _read_one(self, code: int, attributes: dict[Any, Any]) -> list[Event] | Refusal:
        """The event of a type; for a code that no event type has, those of all types below that have resources."""
        if self.agreement.type_of(code) is not None:
            return self._read_pairs([(code, attributes)])
        present = [each for each in self.agreement.codes_below(code) if self.values.is_present(each)]
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

    def is_meant(self, epoch: bytes) -> bool:
        """Whether a client means this server, and not one before it, which may have had other codes."""
        return epoch == self.epoch[:EPOCH_BYTES]

    def _plain_put(self, count: int, remote: str) -> Put:
        """Sender and origins of the events of a plain client: its address, and numbers that grow over all of them."""
        uid = sha256(self.epoch + remote.encode()).digest()[:8]
        first = self._plain_numbers + 1
        self._plain_numbers += count
        return Put(uid, b"", tuple(Origin(uid, number % NUMBERS) for number in range(first, first + count)))

    def _take(self, event: Event, origin: Origin, sender: bytes) -> None:
        outgoing = self.outgoing(event, origin)
        if origin.hops > MOST_HOPS:
            self.refuse(f"more than {MOST_HOPS} hops")
        elif origin.uid != self.uid and self._is_new(event, origin):
            self.counts["received"] += 1
            self.publish(outgoing, sender)
            self._calls.receive(event, origin)

    def _is_new(self, event: Event, origin: Origin) -> bool:
        is_new = self._seen.is_new(event, origin)
        self.counts["duplicates"] += not is_new
        return is_new

    # -- the server and its catalog -----------------------------------------------------------------------------------

    def describe(self, uid: bytes | None) -> Answer:
        """The state of the server, and what it knows of a client."""
        session = self.notifier.sessions.find(uid)
        if session is not None:
            session.alive_at = time.monotonic()
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
