"""`CanLink`: a bus between the nodes of a CAN segment, for `open_bus("can:...")`."""

from collections.abc import Callable, Mapping
from functools import partial
from pathlib import Path
from typing import Any

from genus._extras import missing_extra
from genus.bus._qos import NonReal, QoS
from genus.can._live.address import CanAddress, parse_address
from genus.can._live.host import ECHOING, LiveHost, log
from genus.can._machine import Machine
from genus.can._node.channels import Announcement, Subscriber
from genus.can._node.node import Node
from genus.can._node.troubles import NotBound, TroubleHandler
from genus.can._plan import load_system, plan
from genus.can._plan.calendar import Calendar
from genus.catalog import Catalog
from genus.errors import BusError
from genus.filters import Subscription
from genus.model import Event, name_of

try:
    import can

    can.Bus  # noqa: B018 - a folder named `can` in the working directory is imported too, and is empty
except (ImportError, AttributeError) as missing:
    raise missing_extra("a live CAN bus needs python-can", "can") from missing

BINDING_S = 5.0
"""How long a program waits for its number, the catalog and the binding of a channel."""


def open_interface(address: CanAddress) -> "can.BusABC":
    """The python-can bus of an address."""
    fd = {"fd": True} if address.fd else {}
    try:
        options: dict[str, Any] = {"port": int(address.options["port"])} if "port" in address.options else {}
        return can.Bus(interface=address.interface, **{**address.options, **options, **fd})
    except (can.CanError, OSError, ValueError, TypeError, NotImplementedError, ImportError) as problem:
        where = "".join(f" {name}={value}" for name, value in address.options.items())
        why = f" ({problem.__cause__ or problem.__context__})" if problem.__context__ is not None else ""
        raise BusError(f"can:{address.interface}{where} cannot be opened: {problem}{why}") from None


def open_host(machine: Machine, address: CanAddress) -> LiveHost:
    """Run a machine on the interface of an address."""
    echoes = address.interface in ECHOING
    return LiveHost(machine, open_interface(address), echoes=echoes)


def calendar_of(address: CanAddress, path: Path) -> Calendar:
    """The calendar in a file, or the one planned from a system file (`.toml`), if it is that of the address."""
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


class CanLink:
    """A node of this process on a CAN bus."""

    def __init__(self, text: str) -> None:
        self.address = parse_address(text)
        self._host: LiveHost | None = None
        self._node: Node | None = None

    def open(self, deliver: Callable[[Event], None]) -> None:
        """Join the bus; a node with a number of its own and a catalog is ready at once."""
        address = self.address
        self._node = Node(
            address.uid,
            name=address.name,
            timing=address.timing,
            catalog=Catalog.load(address.catalog) if address.catalog is not None else None,
            number=address.number,
            slots=() if address.plan is None else calendar_of(address, address.plan).slots,
            synchronised=address.synchronised,
            granularity_ns=address.granularity_ns,
            banks=address.banks,
            on_event=deliver,
        )
        self._host = open_host(self._node, address)
        self._host.call(self._node.start)

    # -- publishing --------------------------------------------------------------------------------------------------

    def announce(
        self, cls: type, qos: QoS, on_trouble: TroubleHandler | None, carries: tuple[str, ...] = ()
    ) -> "CanOutlet":
        """Get leave to publish, waiting until the channel is bound; BusError says why it cannot be."""
        return CanOutlet(self, self._announce(cls, qos, on_trouble, carries))

    def send(self, event: Event) -> None:
        """Publish on the channel of the event's type, which is announced without real time if nobody did."""
        cls = type(event)
        if cls not in self.node.publishing.channels:
            self._announce(cls, NonReal(), None, Event.__struct_fields__)
        self.publish(event, loop_back=False)

    def publish(self, event: Event, *, loop_back: bool = True) -> None:
        """Publish on an announced channel."""
        self.host.call(lambda now: self.node.publish(event, now, loop_back=loop_back))

    def withdraw(self, announcement: Announcement) -> None:
        """Publish no more under an announcement."""
        self.host.call(partial(self.node.withdraw, announcement))

    def _announce(
        self, cls: type, qos: QoS, on_trouble: TroubleHandler | None, carries: tuple[str, ...]
    ) -> Announcement:
        made = self.host.call(lambda now: self.node.announce(cls, qos, now, on_trouble=on_trouble, carries=carries))
        self.host.wait_for(lambda: made.state != "binding", BINDING_S)
        if made.state != "ready":
            reason = made.reason or self._whose_silence()
            self.host.call(partial(self.node.withdraw, made))
            raise BusError(f"{name_of(cls)} cannot be announced: {reason}")
        return made

    def _whose_silence(self) -> str:
        if self.node.number is None and self.node.notices["Conflict"]:
            return "another node has its number, under a lower uid; give each node a number of its own"
        if self.node.number is None:
            return f"no broker gave this node a number within {BINDING_S:g} s; start one with `genus can broker`"
        if self.node.catalog is None:
            return f"no broker sent a catalog within {BINDING_S:g} s"
        return f"no broker bound it within {BINDING_S:g} s"

    # -- subscribing -------------------------------------------------------------------------------------------------

    def listen(self, subscription: Subscription, on_trouble: TroubleHandler | None) -> Callable[[], None]:
        """Let what a subscription wants pass the acceptance filters."""
        tell = on_trouble or _log_refusal
        subscriber = self.host.call(lambda now: self.node.subscribe(subscription, None, now, on_trouble=tell))
        return partial(self._ignore, subscriber)

    def _ignore(self, subscriber: Subscriber) -> None:
        if self._host is not None:
            self._host.call(partial(self.node.cancel, subscriber))

    # -- the rest of a link ------------------------------------------------------------------------------------------

    @property
    def node(self) -> Node:
        """The node; only once the link is open."""
        if self._node is None:
            raise BusError("the bus is closed")
        return self._node

    @property
    def host(self) -> LiveHost:
        """What runs the node."""
        if self._host is None:
            raise BusError("the bus is closed")
        return self._host

    def counters(self) -> Mapping[str, int]:
        """Frames of the host, and what the node dropped and lost by reason."""
        if self._host is None:
            return {}
        counts = self.host.call(lambda now: self.node.counts())
        dropped = {f"dropped: {reason}": times for reason, times in counts.dropped.items()}
        lost = {f"lost: {channel}": times for channel, times in counts.lost.items() if times}
        return {**self.host.counters(), **dropped, **lost}

    def close(self) -> None:
        """Send final reports and leave the bus."""
        host, self._host = self._host, None
        if host is not None:
            host.call(self.node.close)
            host.close()


def _log_refusal(trouble: object) -> None:
    """Where nobody asked to be told, a subscription that can never match is at least in the log."""
    if isinstance(trouble, NotBound):
        log.warning("%s: %s", trouble.channel, trouble.reason)


class CanOutlet:
    """Leave to publish one type on a CAN channel."""

    def __init__(self, link: CanLink, announcement: Announcement) -> None:
        self._link = link
        self._announcement = announcement

    def publish(self, event: Any) -> None:
        """Publish an event; this node's own subscribers get it when it was sent, or at its hard deadline."""
        self._link.publish(event)

    def withdraw(self) -> None:
        """Publish no more."""
        if self._link._host is not None:
            self._link.withdraw(self._announcement)
