"""From what a user names to sources: a bus, a gateway, a world; or an address, a recording, a lake, a file."""

from collections.abc import Callable, Collection, Iterator, Sequence
from pathlib import Path
from typing import Any, TypeAlias

from genus.bus import Bus, open_bus, shown_address
from genus.errors import BusError
from genus.filters import Subscription
from genus.model import Event
from genus.studio._bus_source import BusSource
from genus.studio._source import Source

LoadTypes: TypeAlias = Callable[[str], list[type]]
"""Loads the event types of a module or file."""
LAKE_CATALOG = "catalog.json"
TRACE = b'{"file":"genus can trace"'
"""How a trace file begins."""


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
    """
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
