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
from uvicorn.protocols.http.h11_impl import H11Protocol

from genus.bus import parse_event
from genus.errors import EventError, GenusError
from genus.model import Event, attributes, is_event_type, name_of, seconds
from genus.studio._alerts import Alerts
from genus.studio._feed import Feed
from genus.studio._figures import encode, number_of, value_text
from genus.studio._history import History, RangedSource, StoredSource
from genus.studio._layout import MAX_NAME, VIEWS, Alert, Layout, layout_text, plots_of
from genus.studio._plot import NOT_ATTRIBUTES, PlotSeries, PlotStream, last_minute, plotted_ms
from genus.studio._questions import Asked, Questions, event_json, problem_json
from genus.studio._source import AskedSource, PlayedSource, PublishingSource, Source, TimelineSource
from genus.studio._streams import (
    FIRST_BATCH,
    EventStream,
    Ticker,
    followed,
    timeline_json,
    timelines,
)
from genus.studio._taps import Seen, Taps
from genus.studio.types import TABLES

MAX_CONNECTIONS = 600
"""More are closed at once: the files that a process may have open are the program's, too."""
FIRST_REQUEST_S = 10.0
"""How long a connection may take to its first request."""
MAX_SERIES = 20
LISTEN_S, MAX_WAIT_S = 1.0, 30.0
"""How long `/api/events` listens if nobody did before, and at most."""
MAX_ASKED = 1000
MAX_ASKING = 4
"""How many questions a lake is asked at the same time: each may take minutes, and others need the threads too."""
MAX_PLOTTING = 12
"""How many plots of stored points are asked for at the same time: each may wait seconds for what is being read."""
MAX_STRETCHES = 10_000
MAX_BODY = 100_000
MAX_VALUE = 1e18
MAX_SPAN_MS, SHORTEST_SPAN_MS = 10_000.0, 0.1
CONTENT_TYPES = {
    "html": "text/html; charset=utf-8",
    "js": "text/javascript; charset=utf-8",
    "css": "text/css; charset=utf-8",
    "svg": "image/svg+xml",
}


class StudioProtocol(H11Protocol):
    """State: one connection, as uvicorn has it; nothing is logged of requests, and few may be open and do nothing."""

    def __init__(self, *args: Any, **options: Any) -> None:
        super().__init__(*args, **options)
        self.access_log = False  # addresses have the token; and the log is the program's

    def connection_made(self, transport: asyncio.Transport) -> None:  # type: ignore[override]
        """Begin, unless there are too many."""
        super().connection_made(transport)
        if len(self.connections) > MAX_CONNECTIONS:
            transport.abort()
        else:
            self.loop.call_later(FIRST_REQUEST_S, self._close_if_silent)

    def _close_if_silent(self) -> None:
        if self.scope is None and not self.transport.is_closing():
            self.transport.close()


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
        alerts: Alerts,
        layout: Layout,
        *,
        title: str,
        docs: str,
        allow_publish: bool,
    ) -> None:
        self.ticker = Ticker(feed, taps)
        self._sources = {source.name: source for source in sources}
        self._feed, self._taps, self._questions = feed, taps, questions
        self._alerts, self._layout = alerts, layout
        self._allow_publish = allow_publish
        self.history = History()
        self._asking, self._plotting = asyncio.Semaphore(MAX_ASKING), asyncio.Semaphore(MAX_PLOTTING)
        self._config = {
            "title": title,
            "version": version("genus"),
            "allow_publish": allow_publish,
            "docs": docs,
            "tables": list(TABLES),
            "layout": {"view": layout.view, "sound": layout.sound, "plots": layout.plots},
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
            "/api/plot": self._plot,
            "/api/can": self._timeline,
        }
        for path, answer in answers.items():
            yield Route(path, _json(answer))
        yield Route("/api/control", _json(self._control), methods=["POST"])
        yield Route("/api/publish", _json(self._publish), methods=["POST"])
        yield Route("/api/alerts", _json(self._change_alerts), methods=["POST"])
        yield Route("/api/layout", _json(self._save_layout), methods=["POST"])
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
        return _stream(followed(self.ticker, self._taps, names, stream, b"events", lambda kept: kept[-FIRST_BATCH:]))

    async def _events(self, request: Request) -> Any:
        """Return the last events that match; where nobody listens yet, those of the next moment."""
        asked = self._asked(request)
        most = max(1, min(int(_number(request, "most", 100)), MAX_ASKED))
        names = self._names(request)
        start, end = _number(request, "from", None), _number(request, "to", None)
        if start is not None or end is not None:
            span_ms = -MAX_VALUE if start is None else start, MAX_VALUE if end is None else end
            return await self._events_of(names, asked, span_ms, most)
        wait_s = _span(request, "wait", 0.0 if self._taps.are_open(names) else LISTEN_S)
        await self._listen(names, min(wait_s, MAX_WAIT_S))
        found = await run_in_threadpool(_last_of, self._taps.kept(names), asked.is_match, most)
        for name in names if "source" in request.query_params else ():
            source, subscription = self._sources[name], asked.on(name)
            if isinstance(source, AskedSource) and subscription is not None:
                async with self._asking:
                    rows = await run_in_threadpool(source.ask, subscription, most)
                found += [_row_json(name, number, row) for number, row in enumerate(rows, 1)]
        return {"events": found}

    async def _events_of(self, names: list[str], asked: Asked, span_ms: tuple[float, float], most: int) -> Any:
        """The first events of a range of time that match, and how many do: of what sources have stored or kept."""
        found: list[dict[str, Any]] = []
        total = 0
        for name in names:
            async with self._asking:
                events, number = await run_in_threadpool(self._events_between, name, asked, span_ms, most)
            found += events
            total += number
        found.sort(key=lambda event: event["at_ms"] or 0)
        return {"events": found[:most], "total": total}

    def _events_between(
        self, name: str, asked: Asked, span_ms: tuple[float, float], most: int
    ) -> tuple[list[dict[str, Any]], int]:
        source, subscription = self._sources[name], asked.on(name)
        if isinstance(source, RangedSource):
            events, total = ([], 0) if subscription is None else source.events_between(subscription, *span_ms, most)
        else:
            kept = (seen for seen in self._taps.kept([name]) if span_ms[0] <= plotted_ms(seen) <= span_ms[1])
            events = [seen for seen in kept if asked.is_match(seen)]
            total = len(events)
        shown = enumerate(events[:most], 1)
        return [
            event_json(row) if isinstance(row, Seen) else _row_json(name, number, row) for number, row in shown
        ], total

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
        series = self._asked_series(request)
        names = self._names(request)
        stream = PlotStream(series, has_sources=len(names) > 1)
        return _stream(followed(self.ticker, self._taps, names, stream, b"points", last_minute))

    async def _plot(self, request: Request) -> Any:
        """Return the history of a source: the points of a range of time, as many as fit so many columns of pixels."""
        source = self._source(request.query_params.get("source", ""))
        if not isinstance(source, StoredSource):
            raise Refused(400, f"{source.name} stores no events; /api/plot/stream has those that come")
        own = {Event, *source.types()}  # others may have other types of the same names
        series = [each.among(own) for each in self._asked_series(request).values()]
        span_ms = _number(request, "from", None), _number(request, "to", None)
        stretches = max(1, min(int(_number(request, "points", 1000)), MAX_STRETCHES))
        async with self._plotting:
            return await run_in_threadpool(self.history.ask, source, series, span_ms, stretches)

    def _asked_series(self, request: Request) -> dict[str, PlotSeries]:
        texts = request.query_params.getlist("series")
        if not texts or len(texts) > MAX_SERIES:
            raise Refused(400, f"series=TYPE.ATTRIBUTE is given 1 to {MAX_SERIES} times, not {len(texts)}")
        return {text: self._series(text) for text in texts}

    def _series(self, text: str) -> PlotSeries:
        """A series of the classes of a name that have its attributes: sources may have different ones."""
        what, _, by = text.partition(" by ")
        name, _, attribute = what.rpartition(".")
        types = [Event, *(cls for source in self._sources.values() for cls in source.types())]
        found = [cls for cls in dict.fromkeys(types) if name_of(cls) == name and is_event_type(cls)]
        if not found:
            raise Refused(400, f"{text[:80]!r}: there is no event type {name[:80]!r}")
        for each in (attribute, *([by] if by and by not in NOT_ATTRIBUTES else [])):
            known = {cls: [one.name for one in attributes(cls)] for cls in found}
            found = [cls for cls in found if each in known[cls]]
            if not found:
                names = ", ".join(dict.fromkeys(one for listed in known.values() for one in listed))
                raise Refused(400, f"{text[:80]!r}: {name} has no attribute {each[:80]!r}; it has {names}")
        unit = next(one.unit for one in attributes(found[0]) if one.name == attribute)
        return PlotSeries(text, tuple(found), attribute, unit, by or "none")

    def _asked(self, request: Request) -> Asked:
        try:
            return self._questions.ask(request.query_params.get("q", ""))
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
        return source, 1000 * max(SHORTEST_SPAN_MS, min(span_ms, MAX_SPAN_MS))

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
            case "speed", int() | float() if abs(value) < MAX_VALUE:
                change = partial(source.set_speed, float(value))
            case "seek", int() | float() if abs(value) < MAX_VALUE:
                change = partial(source.seek, float(value))
            case _:
                raise Refused(400, "action is play, pause, or speed or seek with a number as value")
        await run_in_threadpool(change)
        return {"ok": True}

    async def _change_alerts(self, request: Request) -> Any:
        """Keep an alert, or forget one; those of a page are never sent to the webhook."""
        match await _body(request):
            case {"action": "remove", "key": str(key)}:
                self._alerts.remove(key)
                return {"ok": True}
            case {"action": "add", "text": str(text), "severity": "warn" | "bad" as severity, **more}:
                name, sources = more.get("name", ""), more.get("sources", [])
                if not isinstance(name, str) or len(name) > MAX_NAME:
                    raise Refused(400, f"name is a text of {MAX_NAME} characters at most")
                if not isinstance(sources, list) or not all(isinstance(each, str) for each in sources):
                    raise Refused(400, "sources is a list of names")
                try:
                    await run_in_threadpool(self._questions.ask, text)  # may take long; then it is known to be right
                except GenusError as problem:
                    raise Refused(400, **problem_json(problem)) from None
                alert = Alert(subscription=text, name=name, severity=severity, sources=tuple(sources))
                return {"ok": True, "key": self._alerts.add(alert)}
        raise Refused(400, "action is add, with text and severity (warn or bad), or remove, with key")

    async def _save_layout(self, request: Request) -> Any:
        """Return the present layout as a file, with the view and the plots that the page has."""
        body = await _body(request)
        view = body.get("view", self._layout.view)
        if view not in VIEWS:
            raise Refused(400, f"view is one of {', '.join(VIEWS)}")
        plots = plots_of(body["plots"]) if "plots" in body else self._layout.plots
        kept = msgspec.structs.replace(self._layout, view=view, plots=plots, alerts=tuple(self._alerts.alerts()))
        return {"text": layout_text(kept)}

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
    """Yield the files of the page, by their paths."""
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
        if len(content) > MAX_BODY:
            raise Refused(413, f"the request is longer than {MAX_BODY:,} bytes")
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
    if found != found or abs(found) > MAX_VALUE:
        raise Refused(400, f"{name}={text[:80]!r} is no number that could be meant")
    return found


def _last_of(kept: Sequence[Seen], is_match: Callable[[Seen], bool], most: int) -> list[dict[str, Any]]:
    """Return the last events that match, the oldest first."""
    found = islice((event_json(seen) for seen in reversed(kept) if is_match(seen)), most)
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
"""Errors are answered as JSON."""
