"""`Hub`: a server: what is answered to requests, and what happens to events that are put. It runs in one thread.

| path | is |
|---|---|
| `/<code>` | the resource of a type, or of all types that a code divides |
| `/types` | the catalog as a document; `?rt=<name>` or `?is=<code>` one type and all above it |
| `/.well-known/core` | discovery; `?is=<code>` lists those that a code divides |
| `/rd-lookup/res` | names of types and their resources (RFC 9176, lookup only) |
| `/g`, `/w` | for clients of Genus: state of the server, what others want |

`Site` is how aiocoap calls it.
"""

import asyncio
import os
import time
from collections.abc import Callable, Sequence
from hashlib import sha256
from typing import Any

from aiocoap import error
from aiocoap import interfaces as aio
from aiocoap.blockwise import ContinueException, IncompleteException
from aiocoap.numbers import codes

from genus.codes import parse_path_segment
from genus.errors import Reasons
from genus.model import Event
from genus.net._coap.datagrams import KNOWN_CRITICAL
from genus.net._coap.endpoint import Endpoint, own_option
from genus.net._coap.inbox import Inbox
from genus.net._coap.notifier import Notifier
from genus.net._coap.shared_catalog import Refused, Resources, SharedCatalog, respond
from genus.net._coap.values import (
    CBOR,
    EPOCH_BYTES,
    Outgoing,
    Put,
    Unreadable,
    line_of,
    read_body,
    read_mark,
    read_put,
    read_uid,
    write_cbor,
)
from genus.net._envelope import MAX_HOPS, NUMBERS, Arrival, Interest, Origin
from genus.net._link.numbers import SeenEvents
from genus.records.internal import Rejections

VERSION = 1
PROXY = frozenset((35, 39))
READS = (codes.GET,)
WRITES = (codes.PUT, codes.POST)
MAX_KEPT = 512
"""Bodies that are kept while clients send or fetch them in blocks."""


class Hub:
    """State: a server."""

    def __init__(
        self,
        endpoint: Endpoint,
        shared: SharedCatalog,
        uid: bytes,
        inbox: Inbox,
        local_interest: Callable[[], list[Interest]],
    ) -> None:
        self.shared, self.uid, self.log = shared, uid, endpoint.log
        self.largest = endpoint.options.largest
        self.must_protect = endpoint.options.credentials is not None
        self.epoch = os.urandom(8)
        self.is_closing = False
        """Whether no more events are taken: clients keep theirs for the next server."""
        self.counts = Reasons()
        self.refusals = Rejections()
        self.resources = Resources(shared)
        self.notifier = Notifier(endpoint, shared, self.resources, self.counts, inbox, local_interest)
        self._inbox = inbox
        self._seen = SeenEvents()
        self._plain_numbers = 0

    def publish(self, outgoing: Outgoing, sender: bytes | None = None) -> None:
        """Make an event the latest of its type, and send it to all observers but its sender."""
        self.resources.put(outgoing)
        self.notifier.notify(outgoing, sender)

    def put(self, code: int, query: Sequence[str], body: bytes, own: bytes | None, remote: str) -> Any:
        """Publish the events of a body, all or none: an event of the code's type, or pairs of types below it."""
        if self.is_closing:
            raise Refused(codes.SERVICE_UNAVAILABLE, "the server is closing")
        given_by = None if own is None else read_put(own)
        if own is not None and given_by is None:
            raise Refused(codes.BAD_REQUEST, "the option of Genus is damaged")
        if given_by is not None:
            self.check_meant(given_by.epoch)
        if query:
            raise Refused(codes.BAD_REQUEST, "a PUT or POST with a query")
        if not self.shared.is_known(code):
            raise Refused(codes.NOT_FOUND, "the code is that of no type in the catalog")
        given = read_body(code, body)
        if isinstance(given, Unreadable):
            raise Refused(codes.BAD_REQUEST, given.reason)
        events = self._read_one(code, given) if isinstance(given, dict) else self._read_pairs(given)
        if given_by is None:
            given_by = self._plain_put(len(events), remote)
        if len(given_by.origins) != len(events):
            raise Refused(codes.BAD_REQUEST, "the option of Genus does not fit the body")
        for event, origin in zip(events, given_by.origins, strict=True):
            self._take(event, origin, given_by.sender)
        return respond(format=None, code=codes.CHANGED)

    def _read_one(self, code: int, attributes: dict[Any, Any]) -> list[Event]:
        """The event of a type; for a code that no event type has, those of all types below that have resources."""
        if self.shared.type_of(code) is not None:
            return self._read_pairs([(code, attributes)])
        read = [self.shared.read(each, attributes) for each in self.resources.present_below(code)]
        events = [event for event in read if not isinstance(event, Unreadable)]
        if not events:
            raise Refused(codes.BAD_REQUEST, "attributes that no resource below the code takes")
        return events

    def _read_pairs(self, pairs: Sequence[tuple[int, dict[Any, Any]]]) -> list[Event]:
        events = []
        for code, attributes in pairs:
            if self.shared.type_of(code) is None:
                raise Refused(codes.NOT_FOUND, "no event type of the catalog has this code")
            event = self.shared.read(code, attributes)
            if isinstance(event, Unreadable):
                raise Refused(codes.BAD_REQUEST, event.reason)
            events.append(event)
        return events

    def check_meant(self, epoch: bytes) -> None:
        """Refuse a request of a client that means a server before this one, which may have had other codes."""
        if epoch != self.epoch[:EPOCH_BYTES]:
            raise Refused(codes.PRECONDITION_FAILED, "the client means a server that was here before")

    def _plain_put(self, count: int, remote: str) -> Put:
        """Sender and origins of the events of a plain client: its address, and numbers that grow over all of them."""
        uid = sha256(self.epoch + remote.encode()).digest()[:8]
        first = self._plain_numbers + 1
        self._plain_numbers += count
        return Put(uid, b"", tuple(Origin(uid, number % NUMBERS) for number in range(first, first + count)))

    def _take(self, event: Event, origin: Origin, sender: bytes) -> None:
        outgoing = self.shared.encode(event, origin)
        if origin.hops > MAX_HOPS:
            self.refusals.add(f"more than {MAX_HOPS} hops")
        elif origin.uid == self.uid:
            return
        elif self._seen.add(Arrival(event, origin), line_of(event, origin)):
            self.counts["received"] += 1
            self.publish(outgoing, sender)
            self._inbox.receive(event, origin)
        else:
            self.counts["duplicates"] += 1

    def describe(self, uid: bytes | None) -> Any:
        """Return the state of the server, and what it knows of a client."""
        session = self.notifier.sessions.find(uid)
        if session is not None:
            session.alive_at = time.monotonic()
        attached = 0 if session is None else sum(one.send is not None for one in session.observers.values())
        known = session.id if session is not None else b""
        state = {0: VERSION, 1: self.epoch, 2: self.shared.digest, 3: attached, 4: known, 5: self.uid}
        return respond(write_cbor(state), max_age=0)

    def add_types(self, body: bytes) -> Any:
        problem = self.shared.merge(body)
        if problem is not None:
            raise Refused(codes.CONFLICT, "types that cannot be added to the catalog", problem)
        return respond(format=None, code=codes.CHANGED)


class Site(aio.Resource):  # type: ignore[misc]
    """Answers all requests."""

    def __init__(self, hub: Hub) -> None:
        super().__init__()
        self._hub = hub
        self._kept = (self._block1._assemblies, self._block2._completes)

    async def needs_blockwise_assembly(self, request: Any) -> bool:
        return False

    async def render_to_pipe(self, pipe: Any) -> None:
        """Answer a request, or observe."""
        try:
            await self._answer(pipe)
        except ContinueException:
            raise
        except Refused as problem:
            path = "/".join(pipe.request.opt.uri_path)
            self._hub.refusals.add(problem.reason, path, pipe.request.payload, problem.detail)
            raise
        except Exception as problem:
            self._hub.refusals.add("an error of the server")
            self._hub.log.exception("a request could not be answered: %r", pipe.request)
            raise error.InternalServerError() from problem

    async def _answer(self, pipe: Any) -> None:
        request = pipe.request
        self._check_options(request)
        if self._hub.must_protect and not request.remote.authenticated_claims:
            raise Refused(codes.UNAUTHORIZED, "a request without the protection of OSCORE")
        if request.code not in (*READS, *WRITES):
            raise Refused(codes.METHOD_NOT_ALLOWED, "a method other than GET, PUT and POST")
        is_read, block = request.code in READS, request.opt.block2
        is_further = is_read and block is not None and block.block_number > 0
        if is_further and (part := self._hub.notifier.large_block(request)) is not None:
            pipe.add_response(part, is_last=True)
        elif is_read and request.opt.observe == 0 and (begin := self._observed(request)) is not None:
            await self._observe(pipe, begin)
        else:
            await self._answer_once(pipe)

    def _check_options(self, request: Any) -> None:
        for option in request.opt.option_list():
            if option.number in PROXY:
                raise Refused(codes.PROXYING_NOT_SUPPORTED, "a request to a proxy, which this is not")
            if option.number % 2 and option.number not in KNOWN_CRITICAL:
                detail = f"option {int(option.number)} is not known"
                raise Refused(codes.BAD_OPTION, "a critical option that is not known", detail)
        bad = getattr(request, "bad_option", None)
        if bad is not None:
            raise Refused(codes.BAD_OPTION, "a critical option that is malformed", f"option {bad} is malformed")
        if any(block is not None and block.size_exponent > 6 for block in (request.opt.block1, request.opt.block2)):
            raise Refused(codes.BAD_REQUEST, "blocks of more than 1024 bytes")

    async def _answer_once(self, pipe: Any) -> None:
        request = pipe.request
        block = request.opt.block1
        if len(request.payload) + (block.start if block is not None else 0) > self._hub.largest:
            raise Refused(codes.REQUEST_ENTITY_TOO_LARGE, f"more than {self._hub.largest} bytes")
        if sum(len(each._items) for each in self._kept) >= MAX_KEPT:
            self._forget_kept()
        try:
            whole = self._block1.feed_and_take(request)
            response = await self._block2.extract_or_insert(whole, lambda: self.render(whole))
        except (IncompleteException, ValueError):
            why = "a block of a body whose blocks before it are not known"
            raise Refused(codes.REQUEST_ENTITY_INCOMPLETE, why) from None
        except error.BadRequest:  # of aiocoap's, which knows no other reason
            response = None
        asked = request.opt.block2
        if response is None or (asked is not None and asked.block_number and response.opt.block2 is None):
            raise Refused(codes.BAD_REQUEST, "a block beyond the end of the body")
        response.opt.block1 = whole.opt.block1
        pipe.add_response(response, is_last=True)

    def _forget_kept(self) -> None:
        """Forget the older half of the bodies that are sent or received in blocks; their clients begin again."""
        for each in self._kept:
            for key in list(each._items)[: (len(each._items) + 1) // 2]:
                del each._items[key]
        self._hub.counts["bodies in blocks that were forgotten"] += 1

    async def render(self, request: Any) -> Any:
        path, is_read, query = tuple(request.opt.uri_path), request.code in READS, tuple(request.opt.uri_query)
        hub, own = self._hub, own_option(request)
        uid = None if own is None else read_uid(own)
        match path, is_read:
            case (".well-known", "core"), True:
                return hub.resources.discover(query)
            case ("rd-lookup", "res"), True:
                return hub.resources.look_up(query, request.remote.uri_base_local)
            case ("types",), True:
                return hub.resources.read_types(query)
            case ("types",), False:
                return hub.add_types(request.payload)
            case ("g",), True:
                return hub.describe(uid)
            case ("g",), False:
                hub.notifier.end_client(uid)
                return respond(format=None, code=codes.CHANGED)
            case ("w",), True:
                return hub.notifier.read_interests(uid)
            case (((".well-known", "core") | ("rd-lookup", "res") | ("w",)), False):
                raise Refused(codes.METHOD_NOT_ALLOWED, "a PUT or POST to a resource that can only be read")
        if len(path) != 1:
            raise Refused(codes.NOT_FOUND, "a path that is not of one segment")
        return self._render_code(_code_of(path[0]), is_read, query, request, own)

    def _render_code(self, code: int, is_read: bool, query: tuple[str, ...], request: Any, own: bytes | None) -> Any:
        if is_read:
            if request.opt.observe == 1 and own is not None and (mark := read_mark(own)) is not None:
                self._hub.notifier.end_observation(mark)
            resources = self._hub.resources
            payload, max_age = resources.read(resources.ask(code, query, request.opt.accept))
            return respond(payload, max_age=max_age)
        if request.opt.content_format not in (None, CBOR):
            raise Refused(codes.UNSUPPORTED_CONTENT_FORMAT, "a format other than CBOR (60)")
        return self._hub.put(code, query, request.payload, own, str(request.remote.hostinfo))

    # -- observations ------------------------------------------------------------------------------------------------

    def _observed(self, request: Any) -> Callable[[Callable[[Any], None]], Callable[[], None]] | None:
        """What begins the observation that a request asks for, and returns what ends it; None if it cannot be one."""
        notifier, path, own = self._hub.notifier, tuple(request.opt.uri_path), own_option(request)
        if path == ("w",):
            return lambda send: notifier.observe_interest(send, request.remote)
        if len(path) != 1 or (code := parse_path_segment(path[0])) is None:
            return None
        mark = None if own is None else read_mark(own)
        if mark is not None:
            self._hub.check_meant(mark.epoch)
        return lambda send: notifier.observe(code, mark, send, request)

    async def _observe(self, pipe: Any, begin: Callable[[Callable[[Any], None]], Callable[[], None]]) -> None:
        """Add an observation, and stay until it ends: then this task is cancelled.

        Whoever waits for an acknowledgement must know before it goes on, so the end is told by the pipe itself.
        """
        end = begin(lambda message: pipe.add_response(message, is_last=not message.code.is_successful()))
        forever = asyncio.get_running_loop().create_future()
        try:
            pipe.on_interest_end(end)
        except RuntimeError:  # one of OSCORE, which tells it by cancelling alone
            try:
                await forever
            finally:
                end()
        await forever


def _code_of(segment: str) -> int:
    code = parse_path_segment(segment)
    if code is None:
        raise Refused(codes.NOT_FOUND, "the path is no code in base64url")
    return code
