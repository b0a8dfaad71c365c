"""The application behind the page: its files, `/api/...` as JSON, and the streams."""

import asyncio
import time
from collections.abc import AsyncIterator, Awaitable, Callable, Iterable, Sequence
from datetime import datetime
from functools import partial
from importlib.metadata import version
from importlib.resources import files
from itertools import islice
from typing import Any

import msgspec
from starlette.applications import Starlette
from starlette.concurrency import run_in_threadpool
from starlette.exceptions import HTTPException
from starlette.requests import Request
from starlette.responses import JSONResponse, Response, StreamingResponse
from starlette.routing import Route

from genus.bus import parse_event
from genus.errors import EventError, GenusError
from genus.model import Event, attributes, is_event_type, name_of, seconds
from genus.studio._feed import Feed
from genus.studio._questions import Questions, event_json, problem_json
from genus.studio._rows import TABLES
from genus.studio._source import AskedSource, PlayedSource, PublishingSource, Source, TimelineSource
from genus.studio._streams import (
    EventStream,
    PlotStream,
    Ticker,
    followed,
    last_minute,
    tester,
    timeline_json,
    timelines,
)
from genus.studio._taps import Seen, Taps
from genus.studio._texts import encode, number_of, value_text

MOST_SERIES = 20
LISTEN_S, LONGEST_WAIT_S = 1.0, 30.0
"""How long `/api/events` listens if nobody did before, and at most."""
MOST_ASKED = 1000
MOST_ASKING = 4
"""How many questions a lake is asked at the same time: each may take minutes, and others need the threads too."""
MOST_PAST = 500
"""Events of before that a new stream begins with."""
LONGEST_BODY = 100_000
MOST_VALUE = 1e18
LONGEST_SPAN_MS, SHORTEST_SPAN_MS = 10_000.0, 0.1
CONTENT_TYPES = {
    "html": "text/html; charset=utf-8",
    "js": "text/javascript; charset=utf-8",
    "css": "text/css; charset=utf-8",
    "svg": "image/svg+xml",
}


class Refused(Exception):
    """A request that cannot be answered: the status, and what to say."""

    def __init__(self, status: int, message: str, **more: Any) -> None:
        super().__init__(message)
        self.status, self.content = status, {"message": message, **more}


class StudioApp:
    """The routes of Studio over the sources."""

    def __init__(
        self,
        sources: Sequence[Source],
        feed: Feed,
        taps: Taps,
        questions: Questions,
        *,
        title: str,
        docs: str,
        allow_publish: bool,
    ) -> None:
        self.ticker = Ticker(feed, taps)
        self._sources = {source.name: source for source in sources}
        self._feed, self._taps, self._questions = feed, taps, questions
        self._allow_publish = allow_publish
        self._asking = asyncio.Semaphore(MOST_ASKING)
        self._config = {
            "title": title,
            "version": version("genus"),
            "allow_publish": allow_publish,
            "docs": docs,
            "tables": list(TABLES),
        }
        self._files = dict(page_files())
        self.asgi = Starlette(routes=list(self._routes()), exception_handlers=HANDLERS)

    def _routes(self) -> Iterable[Route]:
        answers: dict[str, Callable[[Request], Awaitable[Any]]] = {
            "/api/config": self._get_config,
            "/api/check": self._check,
            "/api/complete": self._complete,
            "/api/explain": self._explain,
            "/api/events": self._events,
            "/api/can": self._timeline,
        }
        for path, answer in answers.items():
            yield Route(path, _json(answer))
        yield Route("/api/control", _json(self._control), methods=["POST"])
        yield Route("/api/publish", _json(self._publish), methods=["POST"])
        yield Route("/api/stream", self._stream_tables)
        yield Route("/api/events/stream", self._stream_events)
        yield Route("/api/plot/stream", self._stream_plot)
        yield Route("/api/can/stream", self._stream_timeline)
        yield Route("/api/{table}", _json(self._table))
        yield Route("/", self._file)
        yield Route("/page/{path:path}", self._file)

    # -- files and tables --------------------------------------------------------------------------------------------

    async def _file(self, request: Request) -> Response:
        name = request.path_params.get("path", "index.html")
        content = self._files.get(name)
        if content is None:
            raise Refused(404, f"there is no file {name[:80]!r}")
        kind = CONTENT_TYPES.get(name.rpartition(".")[2], "text/plain; charset=utf-8")
        return Response(content, media_type=kind, headers={"cache-control": "no-cache"})

    async def _get_config(self, request: Request) -> Any:
        return self._config

    async def _table(self, request: Request) -> Any:
        name = request.path_params["table"]
        if name not in TABLES:
            raise Refused(404, f"there is no table {name[:80]!r}; there are {', '.join(TABLES)}")
        return self._feed.rows(name)

    async def _stream_tables(self, request: Request) -> Response:
        names = tuple(sorted({name for name in request.query_params.get("tables", "").split(",") if name}))
        unknown = [name for name in names if name not in TABLES]
        if not names or unknown:
            raise Refused(400, f"tables={','.join(unknown)[:80]!r}: there are {', '.join(TABLES)}")
        return _stream(self.ticker.tables(names))

    # -- subscriptions -----------------------------------------------------------------------------------------------

    async def _check(self, request: Request) -> Any:
        return await run_in_threadpool(self._questions.check, request.query_params.get("q", ""))

    async def _complete(self, request: Request) -> Any:
        text = request.query_params.get("q", "")
        at = _number(request, "at", len(text))
        return await run_in_threadpool(self._questions.complete, text, int(at))

    async def _explain(self, request: Request) -> Any:
        self._feed.rows("types")  # takes new types into the catalog
        return await run_in_threadpool(self._questions.explain, request.query_params.get("q", ""))

    # -- events ------------------------------------------------------------------------------------------------------

    async def _stream_events(self, request: Request) -> Response:
        asked = self._asked(request)
        others = request.query_params.get("others", "0") not in ("0", "")
        names = self._names(request)
        stream = EventStream(asked, others=others)
        return _stream(followed(self.ticker, self._taps, names, stream, b"events", lambda kept: kept[-MOST_PAST:]))

    async def _events(self, request: Request) -> Any:
        """The last events that match; where nobody listens yet, those of the next moment."""
        asked = self._asked(request)
        most = max(1, min(int(_number(request, "most", 100)), MOST_ASKED))
        names = self._names(request)
        wait_s = _span(request, "wait", 0.0 if self._taps.are_open(names) else LISTEN_S)
        await self._listen(names, min(wait_s, LONGEST_WAIT_S))
        found = await run_in_threadpool(_last_of, self._taps.kept(names), tester(asked), most)
        for name in names if "source" in request.query_params else ():
            source = self._sources[name]
            if isinstance(source, AskedSource):
                async with self._asking:
                    rows = await run_in_threadpool(source.ask, asked, most)
                found += [_row_json(name, number, row) for number, row in enumerate(rows, 1)]
        return {"events": found}

    async def _listen(self, names: list[str], length_s: float) -> None:
        """Take the events of some sources for a while; they are kept."""
        end = self._taps.follow(names, lambda events, skipped: None)
        self.ticker.join(end)
        try:
            ends = time.monotonic() + length_s
            while (left := ends - time.monotonic()) > 0 and not self.ticker.is_closed:
                await self.ticker.wait(left)
        finally:
            self._feed.leave(end)
            end()

    async def _stream_plot(self, request: Request) -> Response:
        by = request.query_params.get("by", "none")
        if by not in ("none", "source", "publisher"):
            raise Refused(400, f"by={by[:80]!r}: it is none, source or publisher")
        texts = request.query_params.getlist("series")
        if not texts or len(texts) > MOST_SERIES:
            raise Refused(400, f"series=TYPE.ATTRIBUTE is given 1 to {MOST_SERIES} times, not {len(texts)}")
        stream = PlotStream({text: self._series(text) for text in texts}, by)
        names = self._names(request)
        return _stream(followed(self.ticker, self._taps, names, stream, b"points", last_minute))

    def _series(self, text: str) -> tuple[type, str, str | None]:
        name, _, attribute = text.rpartition(".")
        found = next((cls for cls in self._types() if name_of(cls) == name and is_event_type(cls)), None)
        if found is None:
            raise Refused(400, f"{text[:80]!r}: there is no event type {name[:80]!r}")
        known = {each.name: each for each in attributes(found)}
        if attribute not in known:
            raise Refused(400, f"{text[:80]!r}: {name} has no attribute {attribute[:80]!r}; it has {', '.join(known)}")
        return found, attribute, known[attribute].unit

    def _types(self) -> list[type]:
        return [Event, *(cls for source in self._sources.values() for cls in source.types())]

    def _asked(self, request: Request) -> Any:
        try:
            return self._questions.parse(request.query_params.get("q", ""))
        except GenusError as problem:
            raise Refused(400, **problem_json(problem)) from None

    def _names(self, request: Request) -> list[str]:
        names = list(dict.fromkeys(request.query_params.getlist("source"))) or self._taps.names()
        for name in names:
            self._source(name)
        return names

    def _source(self, name: str) -> Source:
        if name not in self._sources:
            raise Refused(404, f"there is no source {name[:80]!r}; there are {', '.join(self._sources)}")
        return self._sources[name]

    # -- a CAN bus ---------------------------------------------------------------------------------------------------

    async def _stream_timeline(self, request: Request) -> Response:
        source, span_us = self._timeline_of(request)
        return _stream(timelines(self.ticker, source, span_us))

    async def _timeline(self, request: Request) -> Any:
        source, span_us = self._timeline_of(request)
        start_us = _number(request, "start_us", None)
        return await run_in_threadpool(timeline_json, source, start_us, span_us, self._feed.turn.at_ms)

    def _timeline_of(self, request: Request) -> tuple[TimelineSource, float]:
        source = self._source(request.query_params.get("source", ""))
        if not isinstance(source, TimelineSource):
            raise Refused(400, f"{source.name} has no timeline: it is no CAN bus")
        span_ms = _number(request, "span_ms", 20.0)
        return source, 1000 * max(SHORTEST_SPAN_MS, min(span_ms, LONGEST_SPAN_MS))

    # -- changes -----------------------------------------------------------------------------------------------------

    async def _control(self, request: Request) -> Any:
        body = await _body(request)
        source, action, value = self._source(str(body.get("source", ""))), body.get("action"), body.get("value")
        if not isinstance(source, PlayedSource):
            raise Refused(400, f"{source.name} has no time of its own that could be stopped")
        match action, value:
            case "play", _:
                change: Callable[[], None] = source.play
            case "pause", _:
                change = source.pause
            case "speed", int() | float() if abs(value) < MOST_VALUE:
                change = partial(source.set_speed, float(value))
            case "seek", int() | float() if abs(value) < MOST_VALUE:
                change = partial(source.seek, float(value))
            case _:
                raise Refused(400, "action is play, pause, or speed or seek with a number as value")
        await run_in_threadpool(change)
        return {"ok": True}

    async def _publish(self, request: Request) -> Any:
        if not self._allow_publish:
            raise Refused(403, "nothing is published from this page; start Studio with --allow-publish")
        body = await _body(request)
        source = self._source(str(body.get("source", "")))
        if not isinstance(source, PublishingSource):
            raise Refused(400, f"nothing can be published on {source.name}")
        name, values = str(body.get("type", "")), body.get("values")
        types = {name_of(cls): cls for cls in source.types() if is_event_type(cls)}
        if name not in types:
            raise Refused(400, f"there is no event type {name[:80]!r} on {source.name}")
        if not isinstance(values, dict):
            raise Refused(400, "values is an object of attributes")
        try:
            event: Event = parse_event(types[name], {key: value for key, value in values.items() if value != ""})
        except EventError as problem:
            raise Refused(400, str(problem)) from None
        await run_in_threadpool(source.publish, event)
        return {"ok": True}


def page_files() -> Iterable[tuple[str, bytes]]:
    """The files of the page, by their paths."""
    stack = [("", files("genus.studio").joinpath("page"))]
    while stack:
        path, folder = stack.pop()
        for each in folder.iterdir():
            if each.is_dir():
                stack.append((f"{path}{each.name}/", each))
            else:
                yield f"{path}{each.name}", each.read_bytes()


def _json(answer: Callable[[Request], Awaitable[Any]]) -> Callable[[Request], Awaitable[Response]]:
    async def respond(request: Request) -> Response:
        return Response(encode(await answer(request)), media_type="application/json")

    return respond


def _stream(messages: AsyncIterator[bytes]) -> Response:
    headers = {"cache-control": "no-store", "x-accel-buffering": "no"}
    return StreamingResponse(messages, media_type="text/event-stream", headers=headers)


async def _body(request: Request) -> dict[str, Any]:
    content = b""
    async for part in request.stream():
        content += part
        if len(content) > LONGEST_BODY:
            raise Refused(413, f"the request is longer than {LONGEST_BODY:,} bytes")
    try:
        return msgspec.json.decode(content, type=dict[str, Any])
    except (msgspec.MsgspecError, UnicodeDecodeError, RecursionError):
        raise Refused(400, "the request is no JSON object") from None


def _span(request: Request, name: str, default: float) -> float:
    try:
        return seconds(request.query_params.get(name, default), name, error=ValueError)
    except ValueError as problem:
        raise Refused(400, str(problem)) from None


def _number(request: Request, name: str, default: Any) -> Any:
    text = request.query_params.get(name)
    if text is None:
        return default
    try:
        found = float(text)
    except ValueError:
        raise Refused(400, f"{name}={text[:80]!r} is no number") from None
    if found != found or abs(found) > MOST_VALUE:
        raise Refused(400, f"{name}={text[:80]!r} is no number that could be meant")
    return found


def _last_of(kept: Sequence[Seen], is_match: Callable[[Event], bool], most: int) -> list[dict[str, Any]]:
    """The last events that match, the oldest first."""
    found = islice((event_json(seen) for seen in reversed(kept) if is_match(seen.event)), most)
    return list(found)[::-1]


def _row_json(source: str, number: int, row: Any) -> dict[str, Any]:
    """A row of a source that was asked, in the form of an event."""
    values = {name: value for name, value in row.items() if value is not None and name != "type"}
    numbers = ((name, number_of(value)) for name, value in values.items())
    at = values.get("time")
    return {
        "n": -number,
        "source": source,
        "publisher": None,
        "type": str(row.get("type", "")),
        "at_ms": round(at.timestamp() * 1000, 3) if isinstance(at, datetime) else None,
        "values": {name: value_text(value) for name, value in values.items()},
        "numbers": {name: value for name, value in numbers if value is not None},
        "why": None,
    }


async def _refuse(request: Request, problem: Exception) -> Response:
    assert isinstance(problem, Refused)
    return JSONResponse(problem.content, problem.status)


async def _fail(request: Request, problem: Exception) -> Response:
    return JSONResponse({"message": str(problem)}, 400)


async def _miss(request: Request, problem: Exception) -> Response:
    assert isinstance(problem, HTTPException)
    return JSONResponse({"message": problem.detail}, problem.status_code, problem.headers)


HANDLERS: dict[Any, Any] = {Refused: _refuse, GenusError: _fail, HTTPException: _miss}
"""Errors are told as JSON."""
