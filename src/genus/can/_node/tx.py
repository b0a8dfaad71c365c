"""The sending side of a node: announcements, events on their way, and reports of what became of them."""

from collections.abc import Callable, Iterable
from datetime import datetime
from functools import partial
from typing import Any

from genus.bus._qos import Hard, NonReal, QoS, Soft, alike, nanoseconds
from genus.can._node.channels import Announcement, Publication, tell
from genus.can._node.context import Desk
from genus.can._node.reports import Reporter
from genus.can._node.slots import Dispatcher, Sender
from genus.can._node.troubles import (
    DeadlineMissed,
    Expired,
    NotBound,
    NotSent,
    NumberLost,
    OffTheBus,
    Trouble,
    TroubleHandler,
)
from genus.can._node.tx_queue import Parcel
from genus.can._plan.calendar import Slot
from genus.can._wire.frame import Frame, Priority
from genus.can._wire.length import Timing
from genus.catalog import Catalog
from genus.errors import BusError, QueueFull
from genus.model import Event, name_of
from genus.model._types import micros_of_time

LONGEST_QUEUE = 1024
"""Events without a deadline that may wait in a node."""


class Publishing:
    """State: the channels a node publishes on."""

    def __init__(
        self,
        name: str,
        timing: Timing,
        slots: Iterable[Slot],
        desk: Desk,
        dispatcher: Dispatcher,
        loop_back: Callable[..., None],
    ) -> None:
        self.channels: dict[type, Publication] = {}
        self._name = name
        self._fd = timing.data_bitrate is not None
        self._capacity = 64 if self._fd else 8
        self._slots = [slot for slot in slots if slot.node == name]
        self._outbox = desk.outbox
        self._dispatcher = dispatcher
        self._load_hard = desk.load_hard
        self._call = desk.call
        self._loop_back = loop_back
        self._desk = desk
        self.reporter = Reporter(desk, self.channels.values)

    # -- announcing --------------------------------------------------------------------------------------------------

    def announce(
        self, cls: type[Event], qos: QoS, on_trouble: TroubleHandler | None, carries: Iterable[str] = ()
    ) -> Announcement:
        """Open a channel for publishing; what can be refused now is refused now."""
        if not (isinstance(cls, type) and issubclass(cls, Event) and cls is not Event):
            raise BusError(f"{cls!r} cannot be announced: a channel carries the events of one event type")
        channel = self.channels.get(cls)
        if channel is not None and not alike(channel.qos, qos):
            raise BusError(f"{name_of(cls)} is announced with {channel.qos}, not with {qos}; a channel has one quality")
        if channel is not None and (more := set(carries) - set(channel.carries)):
            raise BusError(f"{name_of(cls)} was announced before, without {', '.join(sorted(more))}")
        if channel is None:
            if isinstance(qos, Hard):
                self._slot_of(name_of(cls), qos)
            channel = Publication(cls, qos, tuple(carries), self._capacity, fd=self._fd)
            self.channels[cls] = channel
        announcement = Announcement(channel, on_trouble)
        channel.announcements.append(announcement)
        return announcement

    def fit(self, channel: Publication, catalog: Catalog) -> None:
        """Read a channel's layout from the catalog, and check that the medium can keep the contract."""
        channel.use(catalog)
        if isinstance(channel.qos, Hard):
            slot = self._slot_of(channel.name, channel.qos)
            if channel.largest is None:
                raise BusError(f"{channel.name} has no largest size (text, bytes); a hard channel needs one")
            if channel.frames > slot.frames:
                raise BusError(f"{channel.name} needs {channel.frames} frames; its slot has room for {slot.frames}")

    def open(self, channel: Publication) -> None:
        """The channel is bound: it is ready once everybody was told how its events come."""
        self.reporter.report(channel, partial(self._ready, channel))

    def _ready(self, channel: Publication, now: int) -> None:
        if channel.state != "binding" or self.channels.get(channel.cls) is not channel:
            return
        channel.state = "ready"
        if isinstance(channel.qos, Hard):
            slot = self._slot_of(channel.name, channel.qos)
            channel.sender = Sender(
                slot, self._load_hard, partial(self._encode_hard, channel), partial(self._hard_sent, channel),
                partial(self._hard_failed, channel), fd=self._fd,
            )  # fmt: skip
            channel.sender.number = self._outbox.number
            self._dispatcher.join(channel.sender, now)

    def refuse(self, channel: Publication, reason: str) -> None:
        """The channel cannot be used."""
        self._leave_calendar(channel)
        channel.state, channel.reason = "refused", reason
        self.tell(channel.announcements, NotBound(channel.name, reason))

    def withdraw(self, announcement: Announcement) -> bool:
        """Publish no more under an announcement; whether it was the last one, with which the channel closes.

        What was published before is still sent, and then a final report.
        """
        channel = announcement.channel
        if announcement not in channel.announcements:
            return False
        channel.announcements.remove(announcement)
        if channel.announcements:
            return False
        self.channels.pop(channel.cls, None)
        self._leave_calendar(channel)
        was_ready, channel.state, channel.reason = channel.state == "ready", "refused", "withdrawn"
        if was_ready:
            self._settle(channel)
        return True

    def suspend(self) -> None:
        """Send nothing until the channels are bound again: the node has no number."""
        for channel in self.channels.values():
            self._leave_calendar(channel)
            channel.reporting = False
            if channel.state == "ready":
                channel.state = "binding"

    def renumber(self, number: int) -> None:
        """Send under another node number from now on."""
        self._outbox.number = number
        for channel in self.channels.values():
            if channel.sender is not None:
                channel.sender.number = number

    def _leave_calendar(self, channel: Publication) -> None:
        if channel.sender is not None:
            channel.sender.end(0)
            self._dispatcher.leave(channel.sender)
            channel.sender = None

    def _slot_of(self, name: str, qos: Hard) -> Slot:
        slots = [slot for slot in self._slots if slot.event == name]
        period = nanoseconds(qos.period)
        if not slots:
            whose = f"node {self._name!r}" if self._name else "a node without a name"
            raise BusError(f"the calendar has no slot for {name} of {whose}; plan one with `genus can plan`")
        for slot in slots:
            if slot.period_ns == period and slot.omissions >= qos.omissions:
                return slot
        planned = " or ".join(f"every {slot.period_ns} ns with {slot.omissions} omissions" for slot in slots)
        raise BusError(f"the calendar has {name} {planned}, not every {period} ns with {qos.omissions} omissions")

    # -- publishing --------------------------------------------------------------------------------------------------

    def publish(self, event: Event, now: int, *, loop_back: bool = True) -> None:
        """Send an event by its channel's quality of service."""
        channel = self.channels.get(type(event))
        if channel is None or channel.state != "ready":
            raise BusError(_not_ready(type(event), channel))
        if channel.sender is not None:
            self._write(channel, channel.sender, event, now)
            return
        bits, payload = channel.encode(event)
        self._check_room(channel)
        parcel = Parcel(
            channel, channel.etag | bits, payload, partial(self._sent, channel, event, loop_back), fd=self._fd
        )
        parcel.on_dropped = partial(self._dropped, channel, event)
        channel.counts.published += 1
        channel.waiting += 1
        if isinstance(channel.qos, Soft):
            self._post_soft(channel, event, parcel, now)
        else:
            parcel.priority = Priority.BULK if channel.qos == NonReal(priority=1) else Priority.NONE
            self._outbox.post_fixed(parcel, now)

    def _check_room(self, channel: Publication) -> None:
        soft = isinstance(channel.qos, Soft)
        if (self._outbox.soft_waiting if soft else self._outbox.fixed_waiting) >= LONGEST_QUEUE:
            problem = QueueFull(f"{LONGEST_QUEUE} events wait in this node; {channel.name} must be published slower")
            problem.queue = self._outbox
            raise problem

    def _post_soft(self, channel: Publication, event: Event, parcel: Parcel, now: int) -> None:
        parcel.deadline = now + channel.deadline_ns if event.deadline is None else self._reading_at(event.deadline)
        if event.expires is not None:
            parcel.expires = self._reading_at(event.expires)
        elif channel.expires_ns is not None:
            parcel.expires = now + channel.expires_ns
        parcel.on_missed = partial(self._missed, channel, event, parcel.deadline)
        if parcel.expires is not None:
            parcel.on_expired = partial(self._expired, channel, event, parcel.expires)
            if parcel.expires <= now:
                return parcel.on_expired()
        self._outbox.post_soft(parcel, now)

    def _reading_at(self, instant: datetime) -> int:
        """What the node's clock shows at an instant; the bus's clock keeps the time of day."""
        return self._dispatcher.time.local_time(1000 * micros_of_time(instant))

    def _sent(self, channel: Publication, event: Event, loop_back: bool, now: int) -> None:
        channel.counts.sent += 1
        channel.waiting -= 1
        if loop_back:
            self._loop_back(event, now)
        self._settle(channel)

    def _settle(self, channel: Publication) -> None:
        """Report for the last time on a channel that was withdrawn, when nothing of it is on its way any more."""
        if channel.reason == "withdrawn" and not channel.waiting:
            self.reporter.report(channel)

    def _dropped(self, channel: Publication, event: Event) -> None:
        channel.counts.failed += 1
        channel.waiting -= 1
        self.tell(channel.announcements, NotSent(channel.name, event, 0))

    def _missed(self, channel: Publication, event: Event, deadline: int) -> None:
        channel.counts.missed += 1
        self.tell(channel.announcements, DeadlineMissed(channel.name, event, deadline))

    def _expired(self, channel: Publication, event: Event, expired: int) -> None:
        channel.counts.expired += 1
        channel.waiting -= 1
        self._settle(channel)
        self.tell(channel.announcements, Expired(channel.name, event, expired))

    # -- hard --------------------------------------------------------------------------------------------------------

    def _write(self, channel: Publication, sender: Sender, event: Event, now: int) -> None:
        channel.encode(event)
        sender.write(event, now)
        channel.counts.published += 1
        channel.counts.replaced = sender.replaced

    def _encode_hard(self, channel: Publication, event: Event) -> tuple[int, Any]:
        bits, payload = channel.encode(event)
        return channel.etag | bits, channel.render(payload)

    def _hard_sent(self, channel: Publication, event: Event, now: int) -> None:
        channel.commit()
        channel.counts.sent += 1
        self._loop_back(event, now, slot=None if channel.sender is None else channel.sender.slot)

    def _hard_failed(self, channel: Publication, event: Event, attempts: int) -> None:
        channel.counts.failed += 1
        self.tell(channel.announcements, NotSent(channel.name, event, attempts))

    def hard_sent(self, frame: Frame, now: int) -> None:
        """A frame of priority 0 went through."""
        for channel in self.channels.values():
            if channel.sender is not None and channel.sender.sent(frame, now):
                return

    def hard_attempt_failed(self, frame: Frame) -> None:
        """A frame of priority 0 was corrupted."""
        for channel in self.channels.values():
            if channel.sender is not None and channel.sender.failed(frame):
                return

    # -- telling -----------------------------------------------------------------------------------------------------

    def tell(self, announcements: Iterable[Announcement], trouble: Trouble) -> None:
        """Call the exception handlers of some publishers."""
        for handler, what in tell(list(announcements), trouble):
            self._call(handler, what)

    def tell_all(self, trouble: Trouble) -> None:
        """Call the exception handlers of all publishers, or of the hard ones if it is about the calendar."""
        for channel in self.channels.values():
            if isinstance(trouble, OffTheBus | NumberLost) or isinstance(channel.qos, Hard):
                self.tell(channel.announcements, trouble)


def _not_ready(cls: type, channel: Publication | None) -> str:
    name = cls.__name__
    if channel is None:
        return f"{name} was not announced on this node; announce its channel first"
    if channel.state == "binding":
        return f"{name} is not bound yet; publish when its announcement is ready"
    return f"{name} cannot be published: {channel.reason}"
