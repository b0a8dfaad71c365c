"""`CanLink`: a node of this process on a CAN bus through python-can, for `open_bus("can:...")`."""

from collections.abc import Callable
from pathlib import Path

from genus._extras import missing_extra
from genus.bus._clock import SystemClock
from genus.bus._qos import Hard, Keep, QoS, Soft
from genus.can._live.address import CanAddress, parse_address
from genus.can._live.host import LiveHost
from genus.can._live.interface_options import interface_arguments
from genus.can._live.interfaces import Confirmation, profile_of
from genus.can._machine import Machine
from genus.can._node.link import NodeLink, NodePublisher, log
from genus.can._node.node import Node
from genus.can._node.troubles import TroubleHandler
from genus.can._plan import load_system, plan
from genus.can._plan.calendar import Calendar
from genus.can._protocol.etags import FileEtags
from genus.catalog import Catalog
from genus.errors import BusError
from genus.model import Event, name_of

try:
    import can

    can.Bus  # noqa: B018 - a folder named `can` in the working directory is imported too, and is empty
except (ImportError, AttributeError) as missing:
    raise missing_extra("a live CAN bus needs python-can", "can") from missing


def open_interface(address: CanAddress) -> "can.BusABC":
    """Open the python-can bus of an address; BusError if that fails, or an option is unknown."""
    arguments = interface_arguments(address)
    if profile_of(address.interface, address.confirm).asks_for_echo:
        arguments["receive_own_messages"] = True
    try:
        return can.Bus(interface=address.interface, **arguments)
    except (can.CanError, OSError, ValueError, TypeError, NotImplementedError, ImportError) as problem:
        where = "".join(f" {name}={value}" for name, value in address.options.items())
        why = f" ({problem.__cause__ or problem.__context__})" if problem.__context__ is not None else ""
        raise BusError(f"can:{address.interface}{where} cannot be opened: {problem}{why}") from None


def open_host(machine: Machine, address: CanAddress) -> LiveHost:
    """Run a machine on the interface of an address."""
    return LiveHost(machine, open_interface(address), profile_of(address.interface, address.confirm))


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
        self._host: LiveHost | None = None

    def announce(
        self,
        cls: type,
        qos: QoS,
        on_trouble: TroubleHandler | None,
        carries: tuple[str, ...] = (),
        keep: Keep | None = None,
    ) -> NodePublisher:
        """Prepare to publish a type; BusError if it has deadlines and the interface does not confirm what was sent."""
        self._refuse_deadlines(cls, qos)
        publisher = super().announce(cls, qos, on_trouble, carries, keep)
        try:
            self._refuse_deadlines(cls, qos)  # the first report of the channel has shown whether echoes come
        except BusError:
            self.withdraw(publisher)
            raise
        return publisher

    def _refuse_deadlines(self, cls: type, qos: QoS) -> None:
        if self._host is not None and not self._host.confirms and isinstance(qos, Soft | Hard):
            raise BusError(
                f"{name_of(cls)} cannot be announced with a deadline: the interface {self.address.interface} does not "
                "confirm what was sent, so lateness could not be told; announce it as NonReal(), or add confirm=send "
                "to the address to count frames as sent when the driver takes them"
            )

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
            banks=_banks_for_events(address),
            on_event=deliver,
        )
        self._host = host = open_host(node, address)
        self.run(node, host, SystemClock(lambda: node.time.global_time(host.clock())))


def _banks_for_events(address: CanAddress) -> int | None:
    """How many acceptance filters the node may use: one is for the echoes of its own frames."""
    by_echo = profile_of(address.interface, address.confirm).confirmation is not Confirmation.SEND
    return address.banks if address.banks is None or not by_echo else max(1, address.banks - 1)
