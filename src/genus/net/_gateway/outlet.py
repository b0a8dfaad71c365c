"""`Outlet`: what carries events to one side: a queue, and a spool while the side is not connected."""

import logging
import threading
import time
from collections import deque
from collections.abc import Callable, Mapping
from typing import Any

from genus.bus import Bus, EventChannel
from genus.bus.types import QoS
from genus.errors import GenusError, Reasons
from genus.model import Event, name_of
from genus.net._gateway.spool import Spool
from genus.net._gateway.status import SideCounters
from genus.net._relay import Arrival, RelayLink

MAX_QUEUED = 10_000
"""Events that may wait for a side that takes long; of more, the oldest are dropped and counted as lost."""
RETRY_S = 10.0
"""How long after a refusal a type is announced again."""
SLOW_S = 1.0
"""A refusal that took so long, as that of a CAN bus without a broker, holds for as long for all events of the type."""

log = logging.getLogger("genus.net")


class Outlet:
    """State: the events on their way to a side. They are sent in the order in which they were put.

    Whoever puts an event calls `drain` afterwards: one thread sends, others leave it to that one. With `runs`, a thread
    of its own does it, for media on which sending may block.
    """

    def __init__(
        self,
        name: str,
        bus: Bus,
        link: RelayLink,
        counts: SideCounters,
        quality: Mapping[type, QoS],
        spool: Spool | None = None,
        *,
        runs: bool = False,
        on_lost: Callable[[Arrival], None] = lambda arrival: None,
    ) -> None:
        self.name, self.spool = name, spool
        self._on_lost = on_lost
        self._damaged = spool.damaged if spool is not None else 0
        """Events of the spool that could not be read, and were counted as lost."""
        self._bus, self._link, self._counts = bus, link, counts
        self._quality = dict(quality)
        self._channels: dict[type, EventChannel[Any] | None] = {}
        self._queue: deque[Arrival] = deque()
        self._sending = threading.Lock()
        self._refused = Reasons()
        self._refusals: dict[type, tuple[GenusError, float]] = {}
        """Types that could not be announced, why, and when to try again."""
        self._takes_over = False
        self._wake = threading.Event()
        self._is_closed = False
        self._thread: threading.Thread | None = None
        if runs:
            self._thread = threading.Thread(target=self._run, name=f"genus-gateway-{name}", daemon=True)
            self._thread.start()

    @property
    def waiting(self) -> int:
        """How many events wait, in the queue and in the spool."""
        return len(self._queue) + (len(self.spool) if self.spool is not None else 0)

    @property
    def is_connected(self) -> bool:
        """Whether the side is connected, as far as its link tells."""
        return self._link.is_connected

    def put(self, arrival: Arrival) -> None:
        """Add an event; calls must not overlap."""
        self._queue.append(arrival)
        if len(self._queue) > MAX_QUEUED:
            self._lose(self._queue.popleft())

    def take_over(self) -> None:
        """Repeat what other gateways sent last before the next event is sent: this one carries on for them."""
        self._takes_over = True

    def drain(self) -> None:
        """Send what waits, unless another thread is doing it; that one sends these events too."""
        if self._thread is not None:
            self._wake.set()
        else:
            self._drain()

    def _run(self) -> None:
        while not self._is_closed:
            self._wake.wait()
            self._wake.clear()
            self._drain()

    def _drain(self) -> None:
        while self._has_work() and self._sending.acquire(blocking=False):
            try:
                while self._has_work():
                    self._send_next()
            finally:
                self._sending.release()

    def _has_work(self) -> bool:
        may_empty_spool = self.spool is not None and self.is_connected and bool(len(self.spool))
        return self._takes_over or bool(self._queue) or may_empty_spool

    def _send_next(self) -> None:
        """Send the oldest event: of the spool, if that has any and the side is connected."""
        if self._takes_over:
            self._takes_over = False
            self._repeat()
        if self.spool is not None and (len(self.spool) or not self.is_connected):
            while self._queue:
                self._write(self.spool, self._queue.popleft())
            first = self.spool.first() if self.is_connected else None
            self._count_damaged(self.spool)
            if first is not None:
                self._forward(first)
                self.spool.sent()
        elif self._queue:
            self._forward(self._queue.popleft())

    def _repeat(self) -> None:
        try:
            self._link.repeat()
            self._link.follow(())
        except Exception:  # of a transport: what waits is sent all the same
            log.exception("a gateway failed to repeat on %s what another one had sent", self.name)

    def _write(self, spool: Spool, arrival: Arrival) -> None:
        """Put an event into the spool, for which others may have to go; one that cannot be written is lost."""
        try:
            for dropped in spool.append(arrival):
                self._lose(dropped)
            self._counts.spooled += 1
            self._count_damaged(spool)
        except (OSError, GenusError) as problem:
            self._refuse(arrival, f"it cannot be spooled: {problem}")

    def _count_damaged(self, spool: Spool) -> None:
        """Count events as lost that cannot be read again; whose they were is not known."""
        if spool.damaged > self._damaged:
            log.warning("%d events of the spool %s cannot be read", spool.damaged - self._damaged, spool.folder)
            self._counts.lost += spool.damaged - self._damaged
            self._damaged = spool.damaged

    def _forward(self, arrival: Arrival) -> None:
        began = time.monotonic()
        try:
            self._announce(type(arrival.event))
            self._link.forward(arrival)
            self._counts.crossed += 1
        except GenusError as problem:
            if time.monotonic() - began > SLOW_S:
                self._refusals[type(arrival.event)] = problem, time.monotonic() + RETRY_S
            self._refuse(arrival, str(problem))
        except Exception:  # of a transport: the side that the event came from must not suffer from it
            self._lose(arrival)
            log.exception("a gateway failed to send an event to %s", self.name)

    def _announce(self, cls: type[Event]) -> None:
        """Announce a type with the quality of service that it has on this side; BusError if it cannot be kept."""
        refusal = self._refusals.get(cls) if self._refusals else None
        if refusal is not None and time.monotonic() < refusal[1]:
            raise refusal[0]
        if cls in self._channels or not self._quality:
            return
        qos = next((qos for limited, qos in self._quality.items() if issubclass(cls, limited)), None)
        self._channels[cls] = self._open_channel(cls, qos) if qos is not None else None

    def _open_channel(self, cls: type[Event], qos: QoS) -> EventChannel[Any]:
        channel: EventChannel[Any] = self._bus.channel(cls, qos, carries=Event.__struct_fields__)
        try:
            channel.announce()
        except GenusError as problem:
            self._refusals[cls] = problem, time.monotonic() + RETRY_S
            raise
        return channel

    def _lose(self, arrival: Arrival) -> None:
        """Count an event as lost, and tell both ends."""
        self._counts.lost += 1
        self._on_lost(arrival)

    def _refuse(self, arrival: Arrival, why: str) -> None:
        """Lose an event; the first of a type and reason is logged."""
        self._lose(arrival)
        event = arrival.event
        name = name_of(type(event))
        if self._refused.add(f"{name}: {why}"):
            log.warning("a gateway could not send a %s to %s: %s", name, self.name, why)

    def sync(self) -> None:
        """Write the spool to the disk."""
        if self.spool is not None and self._sending.acquire(blocking=False):
            try:
                self.spool.sync()
            finally:
                self._sending.release()

    def close(self) -> None:
        """Send what waits; what cannot be sent stays in the spool."""
        self._is_closed = True
        if self._thread is not None:
            self._wake.set()
            if self._thread is not threading.current_thread():
                self._thread.join(5)
        self._drain()
        for channel in self._channels.values():
            if channel is not None:
                channel.cancel()
        if self.spool is not None:
            with self._sending:
                self.spool.close()
