"""`Studio`: the page with its server, from sources to a URL, and what a user names as a source.

Sources are a bus, a gateway, a world; or an address, a recording, a lake, a file.
"""

import asyncio
import errno
import html
import os
import socket
import tempfile
import threading
import webbrowser
from collections.abc import Callable, Collection, Iterable, Iterator, Sequence
from contextlib import suppress
from functools import partial
from importlib import import_module
from pathlib import Path
from typing import TYPE_CHECKING, Any, TypeAlias

from genus._extras import missing_extra
from genus.bus import Bus, open_bus, shown_address
from genus.errors import BusError
from genus.filters import Subscription
from genus.model import Event, Span, seconds
from genus.studio._alerts import Alerts, Webhook
from genus.studio._bus_source import BusSource
from genus.studio._feed import PAUSE, PAUSE_ALONE, Feed
from genus.studio._layout import Layout
from genus.studio._page import LOCAL_NAMES, Access, Guard, check_certificate, check_hosts
from genus.studio._questions import Questions
from genus.studio._source import Source
from genus.studio._taps import Taps
from genus.studio._type_table import TypeTable

if TYPE_CHECKING:
    import uvicorn

    from genus.studio._app import StudioApp

LoadTypes: TypeAlias = Callable[[str], list[type]]
"""Loads the event types of a module or file."""
LAKE_CATALOG = "catalog.json"
TRACE = b'{"file":"genus can trace"'
"""How a trace file begins."""


def check_extra() -> None:
    """Raise an ImportError that names the extra `studio` if it is not installed, whichever package is found missing."""
    try:
        for package in ("numpy", "starlette", "uvicorn"):
            import_module(package)
    except ImportError as missing:
        raise missing_extra(f"Studio needs {missing.name}", "studio") from missing


def source_of(what: Any) -> list[Source]:
    """Return the sources of an object; BusError if it is nothing that can be shown."""
    if isinstance(what, Bus):
        return [BusSource(what, name=_bus_name(what), address=_bus_name(what))]
    if isinstance(what, Source):
        return [what]
    from genus.net import Gateway

    if isinstance(what, Gateway):
        from genus.studio._gateway_source import GatewaySource

        return [GatewaySource(what, name=what.name or "gateway")]
    from genus.can import World

    if isinstance(what, World):
        from genus.studio._world_source import WorldSource

        return [WorldSource(what, name=what.name)]
    raise BusError(f"{what!r} is nothing that Studio can show; give a bus, a gateway, a world or a Source")


def mark_parts(sources: Sequence[Source]) -> None:
    """Find buses whose events another source has as well: sides of gateways, and networks that were named before."""
    from genus.studio._gateway_source import GatewaySource

    gateways = [source for source in sources if isinstance(source, GatewaySource)]
    by_address: dict[str, Source] = {address: one for one in gateways for address in one.addresses.values()}
    for source in sources:
        if isinstance(source, BusSource) and source.part_of is None:
            source.part_of = next((one for one in gateways if any(bus is source.bus for _, bus in one.buses)), None)
            if source.part_of is None and ":" in source.address.removeprefix("local:"):
                first = by_address.setdefault(source.address, source)
                source.part_of = None if first is source else first


def _bus_name(bus: Bus) -> str:
    return "this process" if bus.link is None else str(getattr(bus.link, "medium", type(bus.link).__name__))


def open_source(
    address: str,
    *,
    types: Collection[type] = (),
    load: LoadTypes | None = None,
    catalog: Path | None = None,
    only: str = "Event",
) -> list[Source]:
    """Open what an address names; the sources close it.

    Args:
        address: The address of a bus (`ipc:city`, `can:...`), of a simulation (`sim:...`), the path of a recording, of
            a lake or of a gateway file.
        types: The event types, as Python classes.
        load: Loads the types that a gateway file names.
        catalog: A catalog file, for CAN.
        only: What is subscribed to on networks, as text.

    Raises:
        BusError: There is nothing at the address, or it is none; the message says what could be meant.
        ImportError: The extra `studio` is not installed.
    """
    check_extra()
    scheme, colon, rest = address.partition(":")
    if scheme == "sim" and colon:
        from genus.studio._simulation import open_simulation

        return list(open_simulation(rest))
    if scheme == "can" and colon:
        from genus.studio._can_source import CanSource

        return [CanSource(address, catalog, types, name=shown_address(address))]
    if scheme == "local" and colon:
        raise BusError("local: stays within its program, so nothing could be seen here; call bus.studio() there")
    path = Path(address)
    if path.exists():
        return list(_open_path(path, types, load, catalog))
    if not colon:
        raise BusError(f"{address!r} is no file or folder, and no address of a bus, such as ipc:city or sim:traffic")
    asked = Subscription.parse(only, [Event, *types])
    bus = open_bus(address)
    shown = shown_address(address)
    return [BusSource(bus, name=shown, address=shown, watch=asked, owned=True, types=types)]


def is_trace(path: Path) -> bool:
    """Return whether a file is a trace of a simulated CAN bus, by its first bytes."""
    try:
        with open(path, "rb") as file:
            return file.read(len(TRACE)) == TRACE
    except OSError:
        return False


def _open_path(path: Path, types: Collection[type], load: LoadTypes | None, catalog: Path | None) -> Iterator[Source]:
    if path.is_dir() and (path / LAKE_CATALOG).exists():
        from genus.studio._lake_source import LakeSource

        yield LakeSource(path, name=path.name)
    elif path.is_file() and is_trace(path):
        from genus.studio._world_source import TraceSource

        yield TraceSource(path, catalog, name=path.name)
    elif path.suffix == ".toml":
        yield from _open_toml(path, load)
    else:
        from genus.studio._recording_source import RecordingSource

        yield RecordingSource(path, types, name=path.name)


def _open_toml(path: Path, load: LoadTypes | None) -> Iterator[Source]:
    """Yield a gateway, or a system or city to simulate, by what the file has."""
    import tomllib

    try:
        content = tomllib.loads(path.read_text("utf-8"))
    except (OSError, ValueError) as problem:
        raise BusError(f"{path} cannot be read: {problem}") from problem
    if "side" in content:
        from genus.studio._gateway_source import open_gateway_source

        gateway, buses = open_gateway_source(path, load)
        yield gateway
        for name, bus in buses:
            yield BusSource(bus, name=name, address=gateway.addresses.get(name, name))
    else:
        from genus.studio._simulation import open_simulation

        yield from open_simulation(str(path))


START_S = 10.0
STOP_S = 5.0
SEND_BUFFER = 65_536
"""What the system may hold for a page that does not read."""
MAX_REQUESTS = 500
"""Most pages and requests at the same time."""


def open_studio(
    *what: Any,
    port: int = 0,
    host: str = "127.0.0.1",
    cert: str | os.PathLike[str] | None = None,
    key: str | os.PathLike[str] | None = None,
    token: str | None = None,
    hosts: Iterable[str] = (),
    allow_publish: bool = False,
    catalog: str | os.PathLike[str] | None = None,
    docs: str = "",
    title: str = "",
    layout: Layout | None = None,
) -> "Studio":
    """Open a page on which buses and other sources can be seen live; use it in a `with` block, or close it.

    It ends with the last of its buses. Events of a bus of this process are taken only while a page shows them.

    Args:
        what: Buses, gateways, worlds of the simulator, or sources of your own (`genus.studio.types.Source`).
        port: The port of the page; 0 is any free one.
        host: The address to listen at. All but this machine's own needs `cert` and `key`, and a token.
        cert, key: Files with a certificate for TLS and with its private key.
        token: What the first request must carry; by default one is made where it is needed. `Studio.url` has it.
        hosts: Names by which pages reach this server, besides `host`.
        allow_publish: Whether events can be published from the page.
        catalog: A catalog file, from which codes, bits, event tags and their changes are shown.
        docs: The address of the documentation, for links.
        title: What the page is called.
        layout: The first view, plots and alerts; its sources and types are opened by `genus studio` only.

    Raises:
        BusError: The port is in use, an option is wrong, or others could read along.
        ImportError: Starlette or uvicorn is not installed; the message has the command that installs them.

    >>> from genus import Event, open_bus
    >>> with open_bus() as bus, open_studio(bus) as studio:
    ...     studio.url  # doctest: +ELLIPSIS
    'http://127.0.0.1:...'
    """
    if not what:
        raise BusError("there is nothing to show; give a bus, a gateway, a world or a recording")
    sources, names = _named([source for each in what for source in source_of(each)]), list(hosts)
    mark_parts(sources)
    check_hosts(names)
    tls = _tls(cert, key)
    access = Access.of(host, names, token, has_tls=bool(tls))
    title = title or (layout.title if layout else "") or ", ".join(source.name for source in sources)
    studio = Studio(
        sources,
        _bind(host, port),
        access,
        tls=tls,
        options={"allow_publish": allow_publish, "docs": docs, "title": title},
        catalog=None if catalog is None else Path(catalog),
        layout=layout or Layout(),
        is_alone=all(isinstance(each, Source) for each in what),
    )
    studio._end_with([each for each in what if isinstance(each, Bus)])
    return studio


def _tls(cert: str | os.PathLike[str] | None, key: str | os.PathLike[str] | None) -> dict[str, str]:
    """Return the files of TLS as options of the server; none without them."""
    if cert is None and key is None:
        return {}
    if cert is None or key is None:
        raise BusError("TLS needs both the certificate (cert=) and its private key (key=)")
    check_certificate(os.fspath(cert), os.fspath(key))
    return {"ssl_certfile": os.fspath(cert), "ssl_keyfile": os.fspath(key)}


class Studio:
    """State: a page and its server, made by `open_studio`."""

    def __init__(
        self,
        sources: Sequence[Source],
        listening: socket.socket,
        access: Access,
        *,
        tls: dict[str, str],
        options: dict[str, Any],
        catalog: Path | None,
        layout: Layout,
        is_alone: bool,
    ) -> None:
        self._pause = PAUSE_ALONE if is_alone else PAUSE
        self._sources, self._socket, self._access = sources, listening, access
        self.host, self.port = listening.getsockname()[:2]
        """Where it listens."""
        try:
            taps = Taps(sources)
            self._types = TypeTable(taps, catalog)
            self._app, self._server = self._make(taps, tls, layout, options)
        except BaseException:
            listening.close()
            raise
        self._taps = taps
        self._problem: BaseException | None = None
        self._started = threading.Event()
        self._is_closed = threading.Event()
        self._forget: list[Callable[[], None]] = []
        """Functions to call at the end: those that end the interest in buses, and remove files."""
        self._thread = threading.Thread(target=self._run, name="genus-studio", daemon=True)
        self._thread.start()
        self._started.wait(START_S)
        if self._problem is not None or not self._server.started:
            self.close()
            raise BusError(f"Studio cannot be served at {self.host}:{self.port}: {self._problem or 'it did not start'}")

    def _make(
        self, taps: Taps, tls: dict[str, str], layout: Layout, options: dict[str, Any]
    ) -> "tuple[StudioApp, uvicorn.Server]":
        check_extra()
        import uvicorn

        from genus.studio._app import StudioApp, StudioProtocol

        webhook = Webhook(layout.webhook) if layout.webhook else None
        questions = Questions(self._known_types, lambda: self._types.catalog)
        self._alerts = Alerts(self._sources, taps, questions.ask, webhook=webhook, title=options["title"])
        for alert in layout.alerts:
            self._alerts.add(alert, "file")
        feed = Feed([*self._sources, self._alerts], self._types, pause=self._pause)
        feed.is_followed = lambda: len(self._alerts) > 0
        app = StudioApp(self._sources, feed, taps, questions, self._alerts, layout, **options)
        config = uvicorn.Config(
            Guard(app.asgi, self._access),
            log_config=None,  # the loggers of uvicorn are those of the program that Studio is opened in
            lifespan="off",
            http=StudioProtocol,
            ws="none",
            loop="asyncio",
            server_header=False,
            limit_concurrency=MAX_REQUESTS,
            timeout_graceful_shutdown=1,
            ssl_certfile=tls.get("ssl_certfile"),
            ssl_keyfile=tls.get("ssl_keyfile"),
        )
        return app, uvicorn.Server(config)

    def _known_types(self) -> dict[str, Collection[type]]:
        return {source.name: tuple(source.types()) for source in self._sources}

    @property
    def url(self) -> str:
        """The address of the page, with the token if one is needed."""
        host = self.host if self.host not in ("0.0.0.0", "::") else min(self._access.hosts - LOCAL_NAMES or LOCAL_NAMES)
        token = "" if self._access.token is None else f"?token={self._access.token}"
        return f"{self._access.scheme}://{f'[{host}]' if ':' in host else host}:{self.port}/{token}"

    def open_in_browser(self) -> None:
        """Open the page in the browser of this computer.

        Others see what a browser is started with. So one with a token is opened by a file that only this user can read,
        and that leads to the page; it is removed when Studio is closed.
        """
        address = self.url
        if self._access.token is not None:
            descriptor, name = tempfile.mkstemp(prefix="genus-studio-", suffix=".html")  # mode 0600
            with open(descriptor, "w", encoding="utf-8") as file:
                file.write(f'<!doctype html><meta http-equiv="refresh" content="0; url={html.escape(self.url)}">\n')
            self._forget.append(partial(Path(name).unlink, missing_ok=True))
            address = Path(name).as_uri()
        webbrowser.open(address)

    @property
    def pages(self) -> int:
        """How many pages look at it now."""
        return self._app.ticker.feed.viewers

    def __repr__(self) -> str:
        return f"<Studio of {', '.join(source.name for source in self._sources)} at {self.host}:{self.port}>"

    def __enter__(self) -> "Studio":
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def wait(self, timeout: Span | None = None) -> bool:
        """Block until it is closed, for a span at most; returns whether it is."""
        return self._is_closed.wait(None if timeout is None else seconds(timeout, "timeout"))

    def _end_with(self, buses: Collection[Bus]) -> None:
        """Close it when the last of some buses is closed."""

        def end() -> None:
            if all(bus.is_closed for bus in buses):
                self.close()

        self._forget += [bus.at_close(end) for bus in buses]

    def close(self) -> None:
        """Serve no more, and close the sources that were opened for it; a second call does nothing."""
        if self._is_closed.is_set():
            return
        self._is_closed.set()
        for forget in self._forget:
            forget()
        self._server.should_exit = True
        if threading.current_thread() is not self._thread:
            self._thread.join(STOP_S)
        self._alerts.close()
        self._taps.close()
        self._app.history.close()
        for source in self._sources:
            source.close()
        if threading.current_thread() is not self._thread:  # else the loop that ends now closes it
            self._socket.close()

    # -- in the thread -----------------------------------------------------------------------------------------------

    def _run(self) -> None:
        try:
            asyncio.run(self._serve())
        except (OSError, SystemExit) as problem:
            self._problem = problem
        finally:
            self._socket.close()
            self._started.set()

    async def _serve(self) -> None:
        server = asyncio.create_task(self._server.serve(sockets=[self._socket]))
        while not self._server.started and not server.done():
            await asyncio.sleep(0.005)
        self._started.set()
        turns = asyncio.create_task(self._app.ticker.run())
        closing = asyncio.create_task(self._close_streams())
        try:
            await server
        finally:
            for task in (turns, closing):
                task.cancel()
                with suppress(asyncio.CancelledError):
                    await task

    async def _close_streams(self) -> None:
        """End the streams when the server is to stop: it waits for them."""
        while not self._server.should_exit:
            await asyncio.sleep(0.1)
        self._app.ticker.close()


def _bind(host: str, port: int) -> socket.socket:
    """Return a socket that listens; BusError says why it cannot."""
    try:
        family = socket.AF_INET6 if ":" in host else socket.AF_INET
        made = socket.socket(family, socket.SOCK_STREAM)
        try:
            made.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
            made.setsockopt(socket.SOL_SOCKET, socket.SO_SNDBUF, SEND_BUFFER)
            made.bind((host, port))
            made.listen(128)
        except BaseException:
            made.close()
            raise
    except (OSError, OverflowError) as problem:
        why = getattr(problem, "strerror", None) or problem
        hint = "; port 0 is any free one" if getattr(problem, "errno", None) == errno.EADDRINUSE else ""
        raise BusError(f"Studio cannot listen at {host}:{port}: {why}{hint}") from problem
    return made


def _named(sources: Sequence[Source]) -> list[Source]:
    """Return the sources, each with a name of its own."""
    taken: set[str] = set()
    for source in sources:
        source.name = next(name for name in _numbered(source.name) if name not in taken)
        taken.add(source.name)
    return list(sources)


def _numbered(name: str) -> Iterator[str]:
    yield name
    number = 2
    while True:
        yield f"{name} ({number})"
        number += 1
