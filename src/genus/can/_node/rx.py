"""The receiving side of a node: subscriptions, acceptance filters, and from a frame to a handler's call."""

from collections import Counter
from collections.abc import Callable, Iterable
from functools import lru_cache, partial
from typing import Any

from genus.bus._codec import Rejected
from genus.can._node.channels import Reception, Route, Subscriber, layout_of, tell
from genus.can._node.reports import Report
from genus.can._node.slots import BusTime, Dispatcher, Receiver, coming_at
from genus.can._node.troubles import EventMissing, EventsLost, NotBound, Trouble, TroubleHandler
from genus.can._plan.calendar import Slot
from genus.can._wire.frame import ETAG_MASK, NODE_SHIFT, PRIORITY_SHIFT, Frame
from genus.can._wire.segments import Reassembler
from genus.catalog import Catalog
from genus.errors import GenusError
from genus.filters import Subscription
from genus.model import Event, name_of
from genus.targets import python

REASSEMBLY_NS = 2_000_000_000
"""How long the rest of an event in several frames may take."""
MOST_FORMS = 1 << 16
"""Publishers of channels of which a node knows how they send: more than a bus can have."""


_compiled = lru_cache(maxsize=1024)(python.compile)
"""The test of a subscription; its code is made once for all nodes of a process."""


class Receiving:
    """State: a node's subscriptions and what it does with each event tag."""

    def __init__(
        self,
        slots: Iterable[Slot],
        time: BusTime,
        dispatcher: Dispatcher,
        call: Callable[..., None],
        on_event: Callable[[Event], object] | None = None,
    ) -> None:
        self.subscribers: dict[Subscriber, None] = {}
        self.routes: dict[str, Route] = {}
        self.dropped: Counter[str] = Counter()
        self._forms: dict[tuple[int | None, int], bool] = {}
        self._accepted: tuple[tuple[int, int], ...] = ()
        self._slots = tuple(slots)
        self._time = time
        self._dispatcher = dispatcher
        self._call = call
        self._on_event = on_event
        self._catalog: Catalog | None = None
        self._by_etag: dict[int, tuple[Route, int] | None] = {}
        self._own: dict[type, Route | None] = {}
        self._reassembler = Reassembler(REASSEMBLY_NS)

    # -- subscribing -------------------------------------------------------------------------------------------------

    def use(self, catalog: Catalog, now: int) -> None:
        """Read event tags by a catalog that is new, or has grown."""
        self._catalog = catalog
        self._by_etag.clear()
        self._own.clear()
        for route in self.routes.values():
            route.layout = layout_of(route.cls, catalog.vector(route.name), catalog.tagged_attributes(route.name))
        for subscriber in self.subscribers:
            self._join_slots(subscriber, now)

    def subscribe(
        self,
        subscription: Subscription,
        handler: Callable[[Any], object] | None,
        on_trouble: TroubleHandler | None,
        now: int,
    ) -> Subscriber:
        """Call a handler with what matches from now on."""
        subscriber = Subscriber(subscription, handler, on_trouble)
        self.subscribers[subscriber] = None
        for route in self.routes.values():
            self._enter(route, subscriber)
        if self._catalog is not None:
            self._join_slots(subscriber, now)
        return subscriber

    def cancel(self, subscriber: Subscriber) -> None:
        """Call it no more."""
        self.subscribers.pop(subscriber, None)
        for route in self.routes.values():
            route.entries = [entry for entry in route.entries if entry[1] is not subscriber]
            if not route.entries:
                for receiver in route.receivers:
                    self._dispatcher.leave(receiver)
                route.receivers.clear()
                route.receptions.clear()

    def refuse(self, subscriber: Subscriber, reason: str) -> None:
        """Say that nothing can come, and why."""
        subscriber.state, subscriber.reason = "refused", reason
        self.tell([subscriber], NotBound(str(subscriber.subscription), reason))

    def learn(self, etag: int, *, segmented: bool, node: int | None = None) -> None:
        """How the events of a channel come, from one publisher or from all: in one frame each, or in segments."""
        if (node, etag) not in self._forms and len(self._forms) >= MOST_FORMS:
            return
        self._forms[node, etag] = segmented
        for route in self.routes.values():
            if route.etag == etag:
                for number, reception in route.receptions.items():
                    if node in (None, number):
                        reception.segmented = segmented

    def accept(self, pairs: tuple[tuple[int, int], ...]) -> None:
        """The acceptance filters are now these: what they turn away is not lost."""
        self._accepted = pairs
        for route in self.routes.values():
            route.counts_losses = self._passes_whole(route.name)

    def _passes_whole(self, name: str) -> bool:
        assert self._catalog is not None
        own = self._catalog.own_etags(name)
        return any(mask & own.mask == mask and own.value & mask == value for value, mask in self._accepted)

    def _enter(self, route: Route, subscriber: Subscriber) -> None:
        if subscriber.subscription.accepts(route.cls):
            route.entries.append((_compiled(subscriber.subscription), subscriber))

    def _join_slots(self, subscriber: Subscriber, now: int) -> None:
        for slot in self._slots:
            cls = self._class_of(slot.event) if self._may_want(subscriber, slot.event) else None
            if cls is not None and subscriber.subscription.accepts(cls):
                route = self._route(slot.event, cls)
                if all(receiver.slot is not slot for receiver in route.receivers):
                    receiver = Receiver(slot, partial(self._deliver_due, route), partial(self._missing, route))
                    route.receivers.append(receiver)
                    self._dispatcher.join(receiver, now)

    def _may_want(self, subscriber: Subscriber, name: str) -> bool:
        catalog = self._catalog
        if catalog is None or name not in catalog:
            return False
        wanted = [name_of(cls) for cls in subscriber.subscription.types]
        return all(above in catalog and catalog.subsumes(above, name) for above in wanted)

    def _class_of(self, name: str) -> type[Event] | None:
        if self._catalog is None or name not in self._catalog:
            return None
        return self._catalog.declare(name)

    def _route(self, name: str, cls: type[Event]) -> Route:
        assert self._catalog is not None
        if name not in self.routes:
            layout = layout_of(cls, self._catalog.vector(name), self._catalog.tagged_attributes(name))
            route = Route(cls, name, self._catalog.etag(name), layout)
            route.counts_losses = self._passes_whole(name)
            for subscriber in self.subscribers:
                self._enter(route, subscriber)
            self.routes[name] = route
        return self.routes[name]

    # -- receiving ---------------------------------------------------------------------------------------------------

    def receive(self, frame: Frame, now: int) -> None:
        """An event, or a part of one, has come."""
        etag = frame.id & ETAG_MASK
        found = self._by_etag[etag] if etag in self._by_etag else self._find(etag)
        if found is None:
            self.dropped["unknown event tag"] += 1
            return
        route, bits = found
        reception = self._reception(route, frame.id >> NODE_SHIFT & 0x7F)
        if reception.segmented is None:
            self.dropped["publisher that did not say yet whether it segments"] += 1
            return
        payload = self._reassembler.receive(frame, now) if reception.segmented else frame.data
        if payload:
            self._accept(route, reception, bits, payload, frame, now)
        elif payload is not None:
            self.dropped["empty"] += 1

    def _reception(self, route: Route, node: int) -> Reception:
        found = route.receptions.get(node)
        if found is None:
            form = self._forms.get((node, route.etag), self._forms.get((None, route.etag)))
            found = route.receptions[node] = Reception(segmented=_planned_form(route, node) if form is None else form)
        return found

    def _find(self, etag: int) -> tuple[Route, int] | None:
        found = None
        name = None if self._catalog is None else self._catalog.type_of(etag)
        if name is not None and self._catalog is not None:
            try:
                cls = self._class_of(name)
                found = None if cls is None else (self._route(name, cls), etag - self._catalog.etag(name))
            except GenusError as problem:
                self.dropped[f"unknown type {name}: {problem}"] += 1
        self._by_etag[etag] = found
        return found

    def _accept(self, route: Route, reception: Reception, bits: int, payload: bytes, frame: Frame, now: int) -> None:
        node = frame.id >> NODE_SHIFT & 0x7F
        gap = reception.accept(payload[0] >> 5, payload, now, counting=route.counts_losses)
        if gap < 0:
            self.dropped["repeated"] += 1
            return
        if gap and frame.id >> PRIORITY_SHIFT:
            self._tell_route(route, EventsLost(route.name, node, gap))
        event = route.decode(bits, payload)
        if isinstance(event, Rejected):
            self.dropped[f"not a {route.name}: {event.reason}"] += 1
        elif route.receivers and not frame.id >> PRIORITY_SHIFT:
            self._keep_until_due(_of_node(route.receivers, node), event, now)
        else:
            self.deliver(route, event)

    def deliver(self, route: Route, event: Event) -> None:
        """Call the handlers whose subscriptions match."""
        if self._on_event is not None:
            self._call(self._on_event, event)
        for matches, subscriber in route.entries:
            if subscriber.handler is not None and matches(event):
                subscriber.delivered += 1
                self._call(subscriber.handler, event)

    def loop_back(self, event: Event, now: int, *, slot: Slot | None = None) -> None:
        """Give an event that this node has sent to its own subscribers; a hard one at the end of its slot."""
        cls = type(event)
        route = self._own[cls] if cls in self._own else self._find_own(cls)
        if route is None or not route.entries:
            return
        if slot is not None and route.receivers:
            self._keep_until_due([each for each in route.receivers if each.slot is slot], event, now)
        else:
            self.deliver(route, event)

    def _find_own(self, cls: type[Event]) -> Route | None:
        name = name_of(cls)
        known = self._catalog is not None and name in self._catalog
        found = self._own[cls] = self._route(name, cls) if known else None
        return found

    def report(self, node: int, report: Report) -> None:
        """A publisher tells how much it sent: find out what is missing."""
        self.learn(report.etag, segmented=report.segmented, node=node)
        name = None if self._catalog is None else self._catalog.type_of(report.etag)
        if name is None or not any(self._may_want(subscriber, name) for subscriber in self.subscribers):
            return
        found = self._by_etag.get(report.etag) or self._find(report.etag)
        if found is not None and found[0].entries:
            missing = self._reception(found[0], node).report(report.sent, counting=found[0].counts_losses)
            if missing > 0:
                self._tell_route(found[0], EventsLost(found[0].name, node, missing))

    def problems(self) -> Counter[str]:
        """What was dropped, by reason."""
        return self.dropped + Counter({f"segments: {reason}": n for reason, n in self._reassembler.counts.items()})

    # -- hard --------------------------------------------------------------------------------------------------------

    def _keep_until_due(self, receivers: Iterable[Receiver], event: Event, now: int) -> None:
        instant = self._time.global_time(now)
        if not self._dispatcher.running:
            self.dropped["hard, while the clock is not good enough"] += 1
            return
        for receiver in receivers:
            coming = coming_at(receiver.slot, instant)
            if coming is not None:
                if not receiver.put(event, coming):
                    self.dropped["repeated"] += 1
                return
        self.dropped["hard, outside its slot"] += 1

    def _deliver_due(self, route: Route, event: Event, deadline: int) -> None:
        self.deliver(route, event)

    def _missing(self, route: Route, deadline: int) -> None:
        self._tell_route(route, EventMissing(route.name, deadline))

    # -- telling -----------------------------------------------------------------------------------------------------

    def tell(self, subscribers: Iterable[Subscriber], trouble: Trouble) -> None:
        """Call the exception handlers of some subscribers."""
        for handler, what in tell(list(subscribers), trouble):
            self._call(handler, what)

    def tell_hard(self, trouble: Trouble) -> None:
        """Call the exception handlers of those who wait for hard events, each once."""
        waiting = {entry[1]: None for route in self.routes.values() if route.receivers for entry in route.entries}
        self.tell(waiting, trouble)

    def _tell_route(self, route: Route, trouble: Trouble) -> None:
        self.tell(dict.fromkeys(entry[1] for entry in route.entries), trouble)


def _of_node(receivers: list[Receiver], node: int) -> list[Receiver]:
    """The slots of a class that are a node's; all, where numbers are not those of the plan.

    Several nodes may publish one class, each in slots of its own: what comes too late for one is not for the next.
    """
    return [receiver for receiver in receivers if receiver.slot.number == node] or receivers


def _planned_form(route: Route, node: int) -> bool | None:
    """Whether a node's hard events of a class come in segments, which the calendar knows before the node says so."""
    frames = [receiver.slot.frames for receiver in route.receivers if receiver.slot.number == node]
    return max(frames) > 1 if frames else None
