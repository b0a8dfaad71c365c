"""The broker and the monitor of a live bus, as objects that run until they are closed."""

from collections.abc import Callable, Mapping
from contextlib import ExitStack
from functools import partial
from os import PathLike
from pathlib import Path
from typing import Any

import msgspec

from genus.can._live.interfaces import CanAddress, parse_address
from genus.can._live.link import load_databases, open_host, read_plan
from genus.can._monitor import ChannelStatistics, Monitor, MonitoredFrame
from genus.can._protocol.broker import Broker
from genus.can._protocol.broker_tables import FileEtags, FileStore
from genus.catalog import Catalog
from genus.catalog.internal import lock_file
from genus.errors import BusError
from genus.model import Event

TABLES_TIMEOUT_S = 0.5
"""How long to wait for the tables if another broker uses them."""


def open_broker(
    address: str,
    catalog: str | PathLike[str],
    tables: str | PathLike[str],
    *,
    standby: bool = False,
    on_notice: Callable[[object], None] | None = None,
) -> "LiveBroker":
    """Run the broker of a live bus: it gives numbers to nodes and event tags to channels.

    Close it, or use a `with` block.

    Args:
        address: The address of a CAN bus (`can:...`).
        catalog: The catalog file that event tags are taken from; types that have none get them when a node asks.
        tables: The file where node numbers and channel classes are kept; created if need be.
        standby: Take over only when the active broker is silent.
        on_notice: Is called with what happens, such as `RoleChanged`.

    Raises:
        BusError: The bus cannot be opened.
        CatalogUnavailable: The catalog file cannot be read.
    """
    return LiveBroker(parse_can_address(address), Path(catalog), Path(tables), standby, on_notice)


class LiveBroker:
    """A broker on a live bus, made by `open_broker`."""

    def __init__(
        self,
        address: CanAddress,
        catalog: Path,
        tables: Path,
        standby: bool,
        on_notice: Callable[[object], None] | None,
    ) -> None:
        self.uid = address.uid
        self._path = catalog
        self.catalog = Catalog.load(catalog)
        self._end = ExitStack()
        self._end.enter_context(lock_file(tables, TABLES_TIMEOUT_S))
        self._broker = Broker(
            address.uid,
            self.catalog,
            FileStore(tables),
            standby=standby,
            fd=address.fd,
            etags=FileEtags(catalog),
            notify=on_notice or _ignore,
        )
        try:
            self._host = open_host(self._broker, address)
        except BusError:
            self._end.close()
            raise

    @property
    def numbers(self) -> Mapping[int, int]:
        """The number of each node that is known, by uid."""
        return self._broker.numbers

    @property
    def channels(self) -> Mapping[str, Any]:
        """The channels that were announced, by name."""
        return self._broker.channels

    def reload(self) -> Catalog:
        """Read the catalog file again; the old catalog stays in use if that fails."""
        self.catalog = catalog = Catalog.load(self._path)
        self._host.call(lambda now: self._broker.use(catalog))
        return catalog

    def close(self) -> None:
        """Stop serving the bus; a second call does nothing."""
        with self._end.pop_all():
            if self._host.is_running:
                self._host.call(lambda now: self._broker.close())
                self._host.close()

    def __enter__(self) -> "LiveBroker":
        return self

    def __exit__(self, *_: object) -> None:
        self.close()


class MonitorSnapshot(msgspec.Struct, frozen=True):
    """What a monitor knows at one moment."""

    frames: int
    load: float
    """The share of time in which the bus was busy."""
    nodes: Mapping[int, int]
    """The uid of each node number that was claimed."""
    channels: tuple[ChannelStatistics, ...]
    dropped: Mapping[str, int]
    """Frames that could not be read, or whose time on the bus is not known, by reason."""
    host: Mapping[str, int]
    """Counters of the interface."""
    time_ns: int = 0
    """When that was, in nanoseconds since 1970."""
    busy_ns: int = 0
    """The time in which the bus was busy."""
    heard_ns: Mapping[int, int] = {}
    """When something was last received from each node, by its number."""
    master: int | None = None
    """The number of the node whose clock the others follow."""
    offset_ns: int | None = None
    """The time of the bus, less that of this computer; None if it is not known."""
    is_off: bool = False
    """Whether the interface is off the bus, so that nothing is received."""


def open_monitor(address: str, catalog: str | PathLike[str] | None = None) -> "LiveMonitor":
    """Monitor a live bus: rate, jitter, latency, missed deadlines and losses of every channel.

    Close it, or use a `with` block.

    Args:
        address: The address of a CAN bus (`can:...`); the messages of its databases are channels too.
        catalog: A catalog file, by default that of the address; without any, channels are named by their event tags.

    Raises:
        BusError: The bus cannot be opened.
        DbcError: A database cannot be read.
        CatalogUnavailable: The catalog file cannot be read.
    """
    parsed = parse_can_address(address)
    return LiveMonitor(parsed, parsed.catalog if catalog is None else Path(catalog))


class LiveMonitor:
    """A monitor on a live bus, made by `open_monitor`; it sends nothing."""

    def __init__(self, address: CanAddress, catalog: Path | None) -> None:
        self.catalog_path = catalog
        """The catalog file; None without one."""
        self.catalog = None if catalog is None else Catalog.load(catalog)
        """The catalog by which channels are named."""
        self.calendar = None if address.plan is None else read_plan(address)[0]
        """The slots of the plan that the address names."""
        self._databases = load_databases(address)
        self._receivers: list[Callable[[Event, int, int], object]] = []
        self._monitor = Monitor(address.timing, self.catalog, self._databases)
        self._host = open_host(self._monitor, address)

    @property
    def types(self) -> Mapping[str, type]:
        """The kinds and event types of the databases that the address names, by name."""
        return {} if self._databases is None else self._databases.types

    def on_event(self, receive: Callable[[Event, int, int], object]) -> Callable[[], None]:
        """Call a function with each event, the number of its node, and the time; returns a function that ends it.

        The node of messages of databases is 0; times are nanoseconds since 1970. The function is called by the thread
        that receives, so it must be quick. Without a catalog, only messages of databases are decoded.
        """
        self._receivers = [*self._receivers, receive]
        self._monitor.on_event = self._receive
        return partial(self._forget, receive)

    def _receive(self, event: Event, node: int, now: int) -> None:
        for receive in self._receivers:
            receive(event, node, now)

    def _forget(self, receive: Callable[[Event, int, int], object]) -> None:
        self._receivers = [each for each in self._receivers if each is not receive]
        if not self._receivers:
            self._monitor.on_event = None

    def frames(self, start_ns: int, end_ns: int) -> tuple[MonitoredFrame, ...]:
        """Return the frames that were on the bus between two times, of the last 20,000; the oldest first.

        Args:
            start_ns: Nanoseconds since 1970, by the clock of this computer, as `time_ns` has it.
            end_ns: The same for the end.
        """
        return self._host.call(lambda now: tuple(self._monitor.recent(start_ns, end_ns)))

    def time_ns(self) -> int:
        """Return the time of this computer's clock that frames get, in nanoseconds since 1970."""
        return self._host.clock()

    def reload(self) -> Catalog | None:
        """Read the catalog file again; the old catalog stays in use if that fails."""
        if self.catalog_path is not None:
            self.catalog = catalog = Catalog.load(self.catalog_path)
            self._host.call(lambda now: self._monitor.use(catalog))
        return self.catalog

    def snapshot(self) -> MonitorSnapshot:
        """Return what is known now."""
        return self._host.call(self._take)

    def _take(self, now: int) -> MonitorSnapshot:
        monitor = self._monitor
        return MonitorSnapshot(
            monitor.frames,
            monitor.load(),
            dict(monitor.nodes),
            tuple(monitor.lines(now)),
            dict(monitor.problems()),
            dict(self._host.counters()),
            now,
            monitor.busy_ns,
            dict(monitor.heard),
            monitor.master,
            monitor.offset_ns,
            monitor.is_off,
        )

    def close(self) -> None:
        """Stop monitoring."""
        self._host.close()

    def __enter__(self) -> "LiveMonitor":
        return self

    def __exit__(self, *_: object) -> None:
        self.close()


def address_types(address: str) -> Mapping[str, type]:
    """Return the kinds and event types of the databases that an address names, by name; empty if it names none.

    A bus that is opened with the address uses these classes, so that subscriptions can be made before.

    Raises:
        BusError: The address is wrong.
        DbcError: A database cannot be read.
    """
    databases = load_databases(parse_can_address(address))
    return {} if databases is None else databases.types


def _ignore(notice: object) -> None:
    """Without a handler, notices are dropped."""


def parse_can_address(address: str) -> CanAddress:
    if not address.startswith("can:"):
        raise BusError(f"{address!r} is no CAN bus; write for example can:udp_multicast")
    return parse_address(address.removeprefix("can:"))
