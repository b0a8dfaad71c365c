"""`CanLink`: a node of this process on a CAN bus through python-can, for `open_bus("can:...")`."""

from collections.abc import Callable
from pathlib import Path

from genus._extras import missing_extra
from genus.bus._clock import SystemClock
from genus.can._live.address import CanAddress, parse_address
from genus.can._live.host import ECHOING_INTERFACES, LiveHost
from genus.can._live.interface_options import interface_arguments
from genus.can._machine import Machine
from genus.can._node.link import NodeLink, log
from genus.can._node.node import Node
from genus.can._plan import load_system, plan
from genus.can._plan.calendar import Calendar
from genus.can._protocol.etags import FileEtags
from genus.catalog import Catalog
from genus.errors import BusError
from genus.model import Event

try:
    import can

    can.Bus  # noqa: B018 - a folder named `can` in the working directory is imported too, and is empty
except (ImportError, AttributeError) as missing:
    raise missing_extra("a live CAN bus needs python-can", "can") from missing


def open_interface(address: CanAddress) -> "can.BusABC":
    """Open the python-can bus of an address; BusError if that fails, or an option is unknown."""
    arguments = interface_arguments(address)
    try:
        return can.Bus(interface=address.interface, **arguments)
    except (can.CanError, OSError, ValueError, TypeError, NotImplementedError, ImportError) as problem:
        where = "".join(f" {name}={value}" for name, value in address.options.items())
        why = f" ({problem.__cause__ or problem.__context__})" if problem.__context__ is not None else ""
        raise BusError(f"can:{address.interface}{where} cannot be opened: {problem}{why}") from None


def open_host(machine: Machine, address: CanAddress) -> LiveHost:
    """Run a machine on the interface of an address."""
    echoes = address.interface in ECHOING_INTERFACES
    return LiveHost(machine, open_interface(address), echoes=echoes)


def calendar_of(address: CanAddress, path: Path) -> Calendar:
    """The calendar in a file, or the one planned from a system file (`.toml`), if it fits the address."""
    if path.suffix != ".toml":
        calendar = Calendar.load(path)
    else:
        planned = plan(load_system(path), with_advice=False)
        calendar = planned.calendar
        for verdict in planned.refused:
            log.warning("%s: %s is not admitted: %s", path, verdict.channel, verdict.reason)
        if planned.system.bus.timing != address.timing:
            raise BusError(f"{path} is planned for {planned.system.bus.timing}, but the address says {address.timing}")
    numbers = {slot.number for slot in calendar.slots if slot.node == address.name}
    if address.number is not None and numbers - {address.number}:
        raise BusError(f"{path} has {address.name} as node {numbers.pop()}, but the address says {address.number}")
    return calendar


class CanLink(NodeLink):
    """A node of this process on a CAN bus."""

    def __init__(self, text: str) -> None:
        super().__init__()
        self.address = parse_address(text)

    def open(self, deliver: Callable[[Event], None]) -> None:
        """Join the bus; a node with a number of its own and a catalog is ready at once."""
        address = self.address
        node = Node(
            address.uid,
            name=address.name,
            timing=address.timing,
            catalog=Catalog.load(address.catalog) if address.catalog is not None else None,
            etags=FileEtags(address.catalog) if address.catalog is not None else None,
            number=address.number,
            slots=() if address.plan is None else calendar_of(address, address.plan).slots,
            synchronised=address.synchronised,
            granularity_ns=address.granularity_ns,
            banks=address.banks,
            on_event=deliver,
        )
        host = open_host(node, address)
        self.run(node, host, SystemClock(lambda: node.time.global_time(host.clock())))
