"""The broker and the monitor of a live bus, as objects that run until they are closed."""

from collections.abc import Callable, Mapping
from contextlib import ExitStack
from os import PathLike
from pathlib import Path
from typing import Any

import msgspec

from genus.can._live.address import CanAddress, parse_address
from genus.can._live.link import load_databases, open_host
from genus.can._monitor import ChannelStatistics, Monitor
from genus.can._protocol.broker import Broker
from genus.can._protocol.broker_tables import FileStore
from genus.can._protocol.etags import FileEtags
from genus.catalog import Catalog
from genus.catalog._file import lock_file
from genus.errors import BusError

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
    """Frames that could not be read, by reason."""
    host: Mapping[str, int]
    """Counters of the interface."""


def open_monitor(address: str, catalog: str | PathLike[str] | None = None) -> "LiveMonitor":
    """Monitor a live bus: rate, jitter, latency, missed deadlines and losses of every channel.

    Close it, or use a `with` block.

    Args:
        address: The address of a CAN bus (`can:...`); the messages of its databases are channels too.
        catalog: A catalog file; without it, channels are named by their event tags.

    Raises:
        BusError: The bus cannot be opened.
        DbcError: A database cannot be read.
    """
    return LiveMonitor(parse_can_address(address), None if catalog is None else Catalog.load(catalog))


class LiveMonitor:
    """A monitor on a live bus, made by `open_monitor`."""

    def __init__(self, address: CanAddress, catalog: Catalog | None) -> None:
        self._monitor = Monitor(address.timing, catalog, load_databases(address))
        self._host = open_host(self._monitor, address)

    def snapshot(self) -> MonitorSnapshot:
        """What is known now."""
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
        )

    def close(self) -> None:
        """Stop monitoring."""
        self._host.close()

    def __enter__(self) -> "LiveMonitor":
        return self

    def __exit__(self, *_: object) -> None:
        self.close()


def address_types(address: str) -> Mapping[str, type]:
    """The kinds and event types of the databases that an address names, by name; empty if it names none.

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
    """The parts of an address of a live CAN bus; BusError if it is another."""
    if not address.startswith("can:"):
        raise BusError(f"{address!r} is no CAN bus; write for example can:udp_multicast")
    return parse_address(address.removeprefix("can:"))
