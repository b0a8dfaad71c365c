"""`Site`: the resources of a server, as aiocoap calls them. What they do is done by the hub.

| path | is |
|---|---|
| `/<code>` | the resource of a type, or of all types that a code divides |
| `/.well-known/core` | discovery; `?is=<code>` lists those that a code divides |
| `/rd-lookup/res` | names of types and their resources (RFC 9176, lookup only) |
| `/g`, `/c`, `/w` | for clients of Genus: state of the server, catalog, what others want |
"""

import asyncio
import logging
from collections.abc import Callable
from typing import Any

from aiocoap import Message, error
from aiocoap import interfaces as aio
from aiocoap.blockwise import ContinueException, IncompleteException
from aiocoap.numbers import codes

from genus.codes import parse_path_segment
from genus.net._coap.answers import Answer
from genus.net._coap.datagrams import KNOWN_CRITICAL
from genus.net._coap.endpoint import add_own_option, own_option
from genus.net._coap.hub import Hub
from genus.net._coap.wire import CBOR, etag_of, read_mark, read_uid

log = logging.getLogger("genus.coap")
PROXY = frozenset((35, 39))
BLOCK = 1024
READS = (codes.GET,)
WRITES = (codes.PUT, codes.POST)
MOST_KEPT = 512
"""Bodies that are kept while clients send or fetch them in blocks."""


class Refused(error.ConstructionRenderableError):  # type: ignore[misc]
    """A request that is answered with an error and its reason."""

    def __init__(self, code: Any, reason: str) -> None:
        super().__init__(reason)
        self.code, self.reason = code, reason


class Site(aio.Resource):  # type: ignore[misc]
    """Answers all requests."""

    def __init__(self, hub: Hub) -> None:
        super().__init__()
        self._hub = hub
        self._kept = (self._block1._assemblies, self._block2._completes)

    async def needs_blockwise_assembly(self, request: Any) -> bool:
        """Blocks are assembled below."""
        return False

    async def render_to_pipe(self, pipe: Any) -> None:
        """Answer a request, or observe."""
        try:
            await self._answer(pipe)
        except Refused as problem:
            self._hub.refuse(problem.reason)
            raise
        except ContinueException:
            raise
        except error.RenderableError as problem:
            self._hub.refuse(type(problem).__name__)
            raise
        except Exception as problem:
            self._hub.refuse("an error of the server")
            log.exception("a request could not be answered: %r", pipe.request)
            raise error.InternalServerError() from problem

    async def _answer(self, pipe: Any) -> None:
        request = pipe.request
        self._check_options(request)
        if self._hub.must_protect and not request.remote.authenticated_claims:
            raise Refused(codes.UNAUTHORIZED, "requests must be protected by OSCORE")
        if request.code not in (*READS, *WRITES):
            raise Refused(codes.METHOD_NOT_ALLOWED, "only GET, PUT and POST")
        if (block := self._large_block(request)) is not None:
            pipe.add_response(block, is_last=True)
        elif request.code in READS and request.opt.observe == 0 and len(request.opt.uri_path) == 1:
            await self._observe(pipe)
        else:
            await self._answer_once(pipe)

    def _check_options(self, request: Any) -> None:
        for option in request.opt.option_list():
            if option.number in PROXY:
                raise Refused(codes.PROXYING_NOT_SUPPORTED, "this is no proxy")
            if option.number % 2 and option.number not in KNOWN_CRITICAL:
                raise Refused(codes.BAD_OPTION, f"option {int(option.number)} is not known")
        bad = getattr(request, "bad_option", None)
        if bad is not None:
            raise Refused(codes.BAD_OPTION, f"option {bad} is malformed")
        if any(block is not None and block.size_exponent > 6 for block in (request.opt.block1, request.opt.block2)):
            raise Refused(codes.BAD_REQUEST, "blocks of more than 1024 bytes")

    async def _answer_once(self, pipe: Any) -> None:
        request = pipe.request
        block = request.opt.block1
        if len(request.payload) + (block.start if block is not None else 0) > self._hub.largest:
            raise Refused(codes.REQUEST_ENTITY_TOO_LARGE, f"more than {self._hub.largest} bytes")
        if sum(len(each._items) for each in self._kept) >= MOST_KEPT:
            self._forget_kept()
        try:
            whole = self._block1.feed_and_take(request)
        except ValueError:
            raise IncompleteException from None
        response = await self._block2.extract_or_insert(whole, lambda: self.render(whole))
        response.opt.block1 = whole.opt.block1
        pipe.add_response(response, is_last=True)

    def _forget_kept(self) -> None:
        """Forget the older half of the bodies that are sent or received in blocks; their clients begin again."""
        for each in self._kept:
            for key in list(each._items)[: (len(each._items) + 1) // 2]:
                del each._items[key]
        self._hub.counts["bodies in blocks that were forgotten"] += 1

    async def render(self, request: Any) -> Any:
        """The response to a whole request."""
        answer = self._route(request)
        if isinstance(answer, tuple):
            raise Refused(*answer)
        return _message(answer)

    def _route(self, request: Any) -> Answer | tuple[Any, str]:
        path, is_read = tuple(request.opt.uri_path), request.code in READS
        query = tuple(request.opt.uri_query)
        if path == (".well-known", "core"):
            return self._hub.directory.discover(query) if is_read else _not_allowed()
        if path == ("rd-lookup", "res"):
            return self._hub.directory.look_up(query, request.remote.uri_base_local) if is_read else _not_allowed()
        if len(path) != 1:
            return codes.NOT_FOUND, "resources have one path segment"
        own = own_option(request)
        if len(path[0]) == 1:
            return self._control(path[0], is_read, request, own)
        code = parse_path_segment(path[0])
        if code is None:
            return codes.NOT_FOUND, "the path is no code in base64url"
        if is_read:
            if request.opt.observe == 1 and own is not None and (mark := read_mark(own)) is not None:
                self._hub.notifier.end_observation(mark)
            return self._hub.read(code, query, request.opt.accept)
        if request.opt.content_format not in (None, CBOR):
            return codes.UNSUPPORTED_CONTENT_FORMAT, "values are CBOR (60)"
        return self._hub.put(code, query, request.payload, own, str(request.remote.hostinfo))

    def _control(self, name: str, is_read: bool, request: Any, own: bytes | None) -> Answer | tuple[Any, str]:
        uid = None if own is None else read_uid(own)
        match name, is_read:
            case "g", True:
                return self._hub.describe(uid)
            case "c", True:
                return self._hub.read_catalog()
            case "c", False:
                return self._hub.add_types(request.payload)
            case "w", True:
                return self._hub.notifier.read_wants(uid)
            case "g", False:
                return self._hub.notifier.end_client(uid)
            case "w", False:
                return _not_allowed()
        return codes.NOT_FOUND, "the path is no code in base64url"

    # -- observations ------------------------------------------------------------------------------------------------

    async def _observe(self, pipe: Any) -> None:
        """Add an observation, and stay until it ends: then this task is cancelled.

        Whoever waits for an acknowledgement must know before it goes on, so the end is told by the pipe itself.
        """
        request = pipe.request
        own = own_option(request)
        if request.opt.uri_path == ("w",):
            made = self._hub.notifier.observe_wants(lambda answer: _send(pipe, answer), request.remote)
        else:
            code = parse_path_segment(request.opt.uri_path[0])
            if code is None:
                await self._answer_once(pipe)
                return
            mark = None if own is None else read_mark(own)
            if mark is not None and not self._hub.is_meant(mark.epoch):
                raise Refused(codes.PRECONDITION_FAILED, "this is another server than before")
            query = tuple(request.opt.uri_query)
            made = self._hub.notifier.observe(code, query, mark, lambda answer: _send(pipe, answer), request)
        if isinstance(made, tuple):
            raise Refused(*made)
        try:
            pipe.on_interest_end(made)
        except RuntimeError:  # one of OSCORE, which tells it by cancelling alone
            await _until_cancelled(made)
        await asyncio.get_running_loop().create_future()

    def _large_block(self, request: Any) -> Any:
        """A further block of a notification that did not fit into one datagram; None if none is asked for."""
        block = request.opt.block2
        if block is None or block.block_number == 0 or request.code not in READS:
            return None
        asked = (request.remote.blockwise_key, tuple(request.opt.uri_path), tuple(request.opt.uri_query))
        body = self._hub.notifier.large_body(asked)
        if body is None or block.start >= len(body):
            return None
        made = Message(code=codes.CONTENT, payload=body, content_format=CBOR, etag=etag_of(body))
        part = made._extract_block(block.block_number, block.size_exponent, BLOCK)
        if not part.opt.block2.more:
            self._hub.notifier.large_fetched(asked)
        return part


async def _until_cancelled(end: Callable[[], object]) -> None:
    try:
        await asyncio.get_running_loop().create_future()
    finally:
        end()


def _not_allowed() -> tuple[Any, str]:
    return codes.METHOD_NOT_ALLOWED, "this resource can only be read"


def _send(pipe: Any, answer: Answer) -> None:
    pipe.add_response(_message(answer), is_last=answer.is_last)


def _message(answer: Answer) -> Any:
    message = Message(code=codes.Code(answer.code), payload=answer.payload, transport_tuning=answer.tuning)
    message.opt.content_format = answer.format
    message.opt.observe = answer.observe
    message.opt.max_age = answer.max_age
    message.opt.etag = answer.etag
    if answer.own is not None:
        add_own_option(message, answer.own)
    if answer.is_block:
        message = message._extract_block(0, 6, BLOCK)
    return message
