"""`CanLink`: a node or the databases of this process on a CAN bus through python-can, for `open_bus("can:...")`."""

import errno
import re
from collections.abc import Callable, Mapping
from contextlib import suppress
from functools import partial
from typing import TYPE_CHECKING, Any

import msgspec

import can
from genus._extras import install_command
from genus.bus import Hard, Publisher, Soft
from genus.bus.internal import SystemClock
from genus.bus.types import Keep, QoS
from genus.can._live.host import LiveHost
from genus.can._live.interfaces import (
    DATAGRAM_INTERFACES,
    UNKNOWN,
    CanAddress,
    Confirmation,
    enlarge_buffer,
    interface_arguments,
    lost_datagrams,
    parse_address,
    profile_of,
)
from genus.can._machine import Machine
from genus.can._node.link import NodeLink, Tap, log, log_refusal
from genus.can._node.node import Node
from genus.can._node.problems import BindingFailed, ProblemHandler
from genus.can._plan.admission import plan
from genus.can._plan.calendar import Calendar
from genus.can._plan.system_file import load_system
from genus.can._protocol.broker_tables import FileEtags
from genus.can._protocol.clock_model import known_precision
from genus.can._wire.frame import UNCONFIGURED_NODE
from genus.catalog import Catalog
from genus.errors import BusError, did_you_mean
from genus.filters import Subscription
from genus.model import Event, name_of

if TYPE_CHECKING:  # what databases need is imported for addresses that have some
    from genus.can._foreign import DatabaseLink, ForeignMachine
    from genus.can._foreign_receiver import Databases


_REFUSALS = (TypeError, ValueError, NotImplementedError)
"""What interfaces raise that cannot return own frames."""

_HINTS = {
    errno.EAFNOSUPPORT: "; this kernel has no CAN: load its module (`modprobe vcan`), or use can:udp_multicast",
    errno.ENODEV: "; `ip link` lists the interfaces that exist",
}
"""What to do if SocketCAN refuses to open an interface, by error number."""


def open_interface(address: CanAddress) -> "can.BusABC":
    """Open the python-can bus of an address; BusError if that fails, an option is unknown, or it has no CAN FD."""
    bus = _open_interface(address)
    if address.fd and bus.protocol is can.CanProtocol.CAN_20 and _says_its_protocol(bus, address.interface):
        bus.shutdown()
        raise BusError(
            f"can:{address.interface} is open for classic frames only: python-can has no CAN FD for it; leave out "
            "data_bitrate, on all nodes of the bus"
        )
    return bus


def _says_its_protocol(bus: "can.BusABC", interface: str) -> bool:
    """Whether `bus.protocol` is right: two of python-can's take frames of any form, other packages may not set it."""
    return type(bus).__module__.startswith("can.") and interface not in ("virtual", "slcan")


def _open_interface(address: CanAddress) -> "can.BusABC":
    arguments = interface_arguments(address)
    profile = profile_of(address.interface, address.confirm)
    try:
        if profile.asks_for_echo:
            with suppress(*_REFUSALS if profile is UNKNOWN else ()):
                return can.Bus(interface=address.interface, **{**arguments, "receive_own_messages": True})
        return can.Bus(interface=address.interface, **arguments)
    except (can.CanError, OSError, ValueError, TypeError, NotImplementedError, ImportError) as problem:
        where = "".join(f" {name}={value}" for name, value in address.options.items())
        why = f" ({problem.__cause__ or problem.__context__})" if problem.__context__ is not None else ""
        if address.interface not in can.VALID_INTERFACES:
            why = f"; {_likely(address.interface)}".rstrip("; ")
        hint = _HINTS.get(getattr(problem, "errno", None) or 0, "") if address.interface == "socketcan" else ""
        if "msgpack not installed" in str(problem):
            hint = f"; {install_command('can')}"
        raise BusError(f"can:{address.interface}{where} cannot be opened: {problem}{why}{hint}") from None


def _likely(interface: str) -> str:
    """Return what to write instead of an interface that does not exist: often it is the name of a channel of Linux."""
    if re.fullmatch(r"v?can\d+", interface):
        return f"write can:socketcan?channel={interface}"
    return did_you_mean(interface, can.VALID_INTERFACES)


def open_host(machine: Machine, address: CanAddress) -> LiveHost:
    bus = open_interface(address)
    lost = None
    if address.interface in DATAGRAM_INTERFACES:
        enlarge_buffer(bus.fileno())
        lost = partial(lost_datagrams, bus.fileno())
    return LiveHost(machine, bus, profile_of(address.interface, address.confirm), lost, address.timing)


def read_plan(address: CanAddress) -> tuple[Calendar, int | None]:
    """Return the calendar of an address's plan, and the number that its node has there, if it has one.

    The plan is a calendar, or a system file (`.toml`) that is planned now. BusError if it does not fit the address.
    """
    path, name = address.plan, address.name
    if path is None:
        return Calendar(), None
    numbers: Mapping[str, int] = {}
    if path.suffix != ".toml":
        calendar = Calendar.load(path)
    else:
        planned = plan(load_system(path), with_advice=False)
        calendar, numbers = planned.calendar, planned.system.nodes
        for verdict in planned.refused:
            log.warning("%s: %s is not admitted: %s", path, verdict.channel, verdict.reason)
        for collision in planned.collisions:
            log.warning("%s: %s", path, collision)
        if planned.system.bus.timing != address.timing:
            raise BusError(f"{path} is planned for {planned.system.bus.timing}, but the address says {address.timing}")
    sends = {slot.number for slot in calendar.slots if slot.node == name}
    if address.number is not None and sends - {address.number}:
        raise BusError(f"{path} has {name} as node {sends.pop()}, but the address says {address.number}")
    return calendar, numbers.get(name, min(sends, default=None))


class CanLink(NodeLink):
    """A Genus node of this process on a CAN bus, or the databases of the address, or both."""

    def __init__(self, text: str) -> None:
        super().__init__()
        self.address = parse_address(text)
        self._host: LiveHost | None = None
        self._foreign: DatabaseLink | None = None

    def open(self, deliver: Callable[[Event], None]) -> None:
        """Join the bus; a node with a number of its own and a catalog is ready at once.

        With databases and nothing of a node in the address, nothing is sent but what the program publishes.
        """
        address = self.address
        databases = load_databases(address)
        calendar, number = read_plan(address)
        if address.number is None and address.catalog is not None:
            address = msgspec.structs.replace(address, number=number)
        node = _make_node(address, calendar, deliver) if address.joins else None
        if databases is None:
            assert node is not None, "an address without databases is a node's"
            self._host = host = open_host(node, address)
        else:
            from genus.can._foreign import DatabaseLink

            _check_collisions(address, databases, node)
            machine = _make_machine(address, databases, node, deliver)
            self._host = host = open_host(machine, address)
            self._foreign = DatabaseLink(machine, host)
        if node is None:
            self._driver, self._clock = host, SystemClock(host.clock)
            self._set_taps(self._taps)
        else:
            time = node.time
            clock = SystemClock(
                lambda: time.global_time(host.clock()), lambda: known_precision(time.precision(host.clock()))
            )
            self.run(node, host, clock)

    # -- publishing --------------------------------------------------------------------------------------------------

    def announce(
        self,
        cls: type,
        qos: QoS,
        on_problem: ProblemHandler | None,
        carries: tuple[str, ...] = (),
        keep: Keep | None = None,
    ) -> Publisher:
        """Prepare to publish a type; BusError if it has deadlines and the interface does not confirm what was sent."""
        if self._foreign is not None and self._foreign.owns(cls):
            return self._foreign.announce(cls, qos, on_problem, keep)
        self._refuse_deadlines(cls, qos)
        self._refuse_without_node(cls)
        publisher = super().announce(cls, qos, on_problem, carries, keep)
        try:
            self._refuse_deadlines(cls, qos)  # the first report of the channel has shown whether echoes come
        except BusError:
            publisher.withdraw()
            raise
        return publisher

    def repeats(self, cls: type) -> bool:
        return self._foreign is not None and self._foreign.owns(cls)

    def pass_on(self, event: Event) -> None:
        if self._foreign is not None and self._foreign.owns(type(event)):
            self._foreign.pass_on(event)
        else:
            self._refuse_without_node(type(event))
            super().pass_on(event)

    def _refuse_deadlines(self, cls: type, qos: QoS) -> None:
        if self._host is not None and not self._host.confirms and isinstance(qos, Soft | Hard):
            raise BusError(
                f"{name_of(cls)} cannot be announced with a deadline: the interface {self.address.interface} does not "
                "confirm what was sent, so lateness could not be noticed; announce it as BestEffort(), or add "
                "confirm=send to the address to count frames as sent when the driver takes them"
            )

    def _refuse_without_node(self, cls: type) -> None:
        if not self.address.joins and self._foreign is not None:
            raise BusError(f"{name_of(cls)} cannot be published: {self._no_node()}")

    def _no_node(self) -> str:
        assert self._foreign is not None
        return (
            f"it is no type of {self._foreign.machine.databases}, and this address is no Genus node; "
            "add number=... and catalog=..., or name=..., to be one"
        )

    # -- subscribing -------------------------------------------------------------------------------------------------

    @property
    def types(self) -> Mapping[str, type]:
        return {} if self._foreign is None else self._foreign.types

    def listen(self, subscription: Subscription, on_problem: ProblemHandler | None) -> Callable[[], None]:
        """Let what a subscription matches pass the acceptance filters; returns a function that ends it."""
        foreign = self._foreign
        if foreign is None:
            return super().listen(subscription, on_problem)
        ends: list[Callable[[], None]] = [foreign.listen(subscription)] if foreign.matches(subscription) else []
        if self.address.joins and not all(map(foreign.owns, subscription.types)):
            ends.append(super().listen(subscription, on_problem))
        if not ends:
            (on_problem or log_refusal)(BindingFailed(str(subscription), self._no_node()))
        return partial(_call_all, ends)

    def _set_taps(self, taps: tuple[Tap, ...]) -> None:
        super()._set_taps(taps)
        if self._foreign is not None:
            self._foreign.machine.rx.on_received = self._received_foreign if taps else None
            self._foreign.on_published = self.tell_taps if taps else None

    def _received_foreign(self, event: Event) -> None:
        """Give an event of a database to those who tap this link; its sender has no number."""
        for tap in self._taps:
            tap(event, UNCONFIGURED_NODE)

    # -- the rest of a link ------------------------------------------------------------------------------------------

    @property
    def is_bound(self) -> bool:
        return not self.address.joins or super().is_bound

    def counters(self) -> Mapping[str, int]:
        if self._driver is None or self._foreign is None:
            return super().counters()
        own = super().counters() if self.address.joins else self._driver.counters()
        return {**own, **self._foreign.counters()}

    def close(self) -> None:
        if self._foreign is not None and self._driver is not None:
            self._foreign.close()
        if self.address.joins:
            super().close()
        elif self._driver is not None:
            driver, self._driver = self._driver, None
            driver.close()


def _call_all(functions: list[Callable[[], None]]) -> None:
    for function in functions:
        function()


def _make_node(address: CanAddress, calendar: Calendar, deliver: Callable[[Event], None]) -> Node:
    return Node(
        address.uid,
        name=address.name,
        timing=address.timing,
        catalog=Catalog.load(address.catalog) if address.catalog is not None else None,
        etags=FileEtags(address.catalog) if address.catalog is not None else None,
        number=address.number,
        slots=calendar.slots,
        synchronised=address.synchronised,
        sync_period_ns=calendar.sync_period_ns,
        granularity_ns=address.granularity_ns,
        banks=_banks_for_events(address),
        on_event=deliver,
    )


def load_databases(address: CanAddress) -> "Databases | None":
    """Return the databases of an address; None if it has none. DbcError if a file cannot be used."""
    if not address.databases:
        return None
    from genus.can._dbc import load_dbc
    from genus.can._foreign_receiver import Databases

    options: Any = {"truncated": address.truncated, "j1939": address.j1939, "nmea2000": address.nmea2000}
    databases = Databases([load_dbc(path, reuse=True, **options) for path in address.databases])
    for problem in databases.problems:
        log.info("%s", problem)
    return databases


def _make_machine(
    address: CanAddress, databases: "Databases", node: Node | None, deliver: Callable[[Event], None]
) -> "ForeignMachine":
    from genus.can._foreign import ForeignMachine

    return ForeignMachine(
        databases,
        address.timing,
        node=node,
        banks=address.banks if node is None else _banks_for_events(address),
        echoes=_confirms_by_echo(address),
        cyclic=address.cyclic,
        on_event=deliver,
    )


def _check_collisions(address: CanAddress, databases: "Databases", node: Node | None) -> None:
    """Refuse identifiers of databases that this node sends too, and warn of those that other nodes may."""
    from genus.can._foreign_receiver import find_live_collisions

    if node is None:
        return
    for collision in find_live_collisions(databases.messages, address.number, node.catalog):
        if collision.is_certain:
            raise BusError(f"can:{address.interface}: {collision}")
        log.warning("can:%s: %s", address.interface, collision)


def _confirms_by_echo(address: CanAddress) -> bool:
    return profile_of(address.interface, address.confirm).confirmation is not Confirmation.SEND


def _banks_for_events(address: CanAddress) -> int | None:
    """Return how many acceptance filters the node may use: one is for the echoes of its own frames."""
    by_echo = _confirms_by_echo(address)
    return address.banks if address.banks is None or not by_echo else max(1, address.banks - 1)
