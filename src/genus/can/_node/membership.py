"""A node's place on the bus: its number, its catalog, the binding of its channels, and its acceptance filters."""

from collections import Counter
from collections.abc import Callable, Iterable

from genus.bus._qos import Hard, QoS, Soft, nanoseconds
from genus.can._node.channels import Publication, Subscriber
from genus.can._node.context import Desk
from genus.can._node.rx import Receiving
from genus.can._node.troubles import NumberLost
from genus.can._node.tx import Publishing
from genus.can._protocol.binding import Binding
from genus.can._protocol.catalog_queries import Questions
from genus.can._protocol.configuration import Configuration
from genus.can._protocol.messages import Announce, QosClass, digest_of, parse
from genus.can._protocol.notices import (
    Bound,
    BrokerSeen,
    CatalogReceived,
    ClassConflict,
    Configured,
    Conflict,
    Refused,
    Unanswered,
)
from genus.can._wire.frame import ETAG_MASK, Frame, subject_uid
from genus.catalog import Catalog
from genus.errors import GenusError
from genus.filters import Subscription
from genus.model import Event, is_event_type, name_of, subtypes
from genus.targets.can import SharedFilters

RESERVED_ETAGS = 128
PROTOCOL_FILTER = (0, ETAG_MASK & ~(RESERVED_ETAGS - 1))
"""Accepts all traffic of the middleware itself."""


class Membership:
    """State: how far a node is on its way to take part, and what it was given.

    With a number of its own it claims that, and binds by its catalog alone; else the broker gives the number, binds the
    channels, and sends the catalog to a node that has none or an older one.
    """

    def __init__(
        self,
        uid: int,
        desk: Desk,
        publishing: Publishing,
        receiving: Receiving,
        on_notice: Callable[[object], object] | None,
        *,
        number: int | None,
        catalog: Catalog | None,
        banks: int | None,
        seed: int | None,
    ) -> None:
        self.number = number
        self.catalog = catalog
        self._started = False
        self.needs_broker = number is None
        self.notices: Counter[str] = Counter()
        """What the protocols told, by kind."""
        self._desk = desk
        self._publishing = publishing
        self._receiving = receiving
        self._on_notice = on_notice
        self._banks = banks
        self._filters: SharedFilters | None = None
        self._accepted: tuple[tuple[int, int], ...] = ()
        self.configuration = Configuration(uid, send=desk.post, withdraw=desk.withdraw, tell=self.heed, seed=seed)
        self.binding = Binding(send=desk.post, withdraw=desk.withdraw, tell=self.heed)
        self.questions = Questions(send=desk.post, withdraw=desk.withdraw, tell=self.heed)

    def start(self) -> None:
        """Claim the number there is, or ask for one."""
        self._started = True
        self._set_filters()
        if self.number is not None:
            self.configuration.adopt(self.number, self._desk.now)
        else:
            self.configuration.start(self._desk.now)

    def receive(self, frame: Frame) -> None:
        """A frame of the protocols was heard."""
        self.configuration.receive(frame, self._desk.now)
        if self.needs_broker:
            self.binding.receive(frame, self._desk.now)
            self.questions.receive(frame, self._desk.now)

    def heard_announcement(self, frame: Frame) -> None:
        """Another publisher tells whether its events come in one frame or in segments."""
        announcement = parse(frame)
        if isinstance(announcement, Announce):
            self._receiving.learn(announcement.etag, segmented=announcement.segmented, node=announcement.node)

    # -- catalog and filters -----------------------------------------------------------------------------------------

    def use(self, catalog: Catalog) -> None:
        """Go on with a catalog that is new, or has grown."""
        self.catalog = catalog
        self._filters = SharedFilters(catalog, banks=self._banks, always=(PROTOCOL_FILTER,))
        for subscriber in self._receiving.subscribers:
            self.recognise(subscriber.subscription)
        self._receiving.use(catalog, self._desk.now)
        for subscriber in self._receiving.subscribers:
            self._admit(subscriber)
        for channel in list(self._publishing.channels.values()):
            if channel.state == "binding":
                self._bind_or_refuse(channel)
        self._set_filters()

    def recognise(self, subscription: Subscription) -> None:
        """Let the catalog know the classes of this process before it would find or make others of the same names."""
        if self.catalog is not None:
            for cls in subscription.types:
                if cls is not Event:
                    self.catalog.use_classes(*subtypes(cls))

    def want(self, subscriber: Subscriber) -> None:
        """Let what a subscriber wants pass the acceptance filters, once the catalog is there."""
        self._admit(subscriber)
        self._set_filters()

    def want_no_more(self, subscriber: Subscriber) -> None:
        """Let nothing pass that only this subscriber wanted."""
        if self._filters is not None and subscriber.filter_handle is not None:
            self._filters.remove(subscriber.filter_handle)
            subscriber.filter_handle = None
        self._set_filters()

    def _admit(self, subscriber: Subscriber) -> None:
        if self._filters is None or self.catalog is None:
            return
        try:
            for cls in subscriber.subscription.types:
                self.catalog.code(cls)
            subscriber.filter_handle = self._filters.add(subscriber.subscription)
        except GenusError as problem:
            self._receiving.refuse(subscriber, str(problem))
            return
        subscriber.state = "ready"
        if self.needs_broker:
            for subject in _subjects(subscriber.subscription.types):
                self.binding.bind(subject, self._desk.now)

    def _set_filters(self) -> None:
        accepted: tuple[tuple[int, int], ...] = (PROTOCOL_FILTER,) if self._filters is None else self._filters.pairs
        if accepted != self._accepted and self._started:
            self._accepted = accepted
            self._desk.accept(accepted)
            self._receiving.accept(accepted)

    # -- binding -----------------------------------------------------------------------------------------------------

    def bind(self, channel: Publication) -> None:
        """Bind a channel as far as that is possible now; what the medium cannot keep is refused."""
        if self._started and self.catalog is not None and self.number is not None:
            self._publishing.fit(channel, self.catalog)
            if self.needs_broker:
                self.binding.bind(channel.uid, self._desk.now)
            else:
                self._open(channel)

    def unbind(self, channel: Publication) -> None:
        """The channel was closed."""
        self.binding.forget(channel.uid, self._desk.now)

    def _bind_or_refuse(self, channel: Publication) -> None:
        try:
            self.bind(channel)
        except GenusError as problem:
            self._publishing.refuse(channel, str(problem))

    def _open(self, channel: Publication) -> None:
        """The channel is bound: announce it to everybody, and let events go."""
        self.binding.announce(
            channel.uid,
            channel.etag,
            class_of(channel.qos),
            segmented=channel.segmented,
            size=255 if channel.largest is None else channel.largest,
            span_us=_span_ns(channel.qos) // 1000,
        )
        self._publishing.open(channel)

    def _bound(self, bound: Bound) -> None:
        for channel in self._publishing.channels.values():
            if channel.uid == bound.subject and channel.state != "ready":
                self._settle(channel, bound)
        for subscriber in self._receiving.subscribers:
            if bound.subject in _subjects(subscriber.subscription.types):
                subscriber.state = "ready"
        if bound.qos_class != QosClass.UNANNOUNCED:
            self._receiving.learn(bound.etag, segmented=bound.segmented)

    def _settle(self, channel: Publication, bound: Bound) -> None:
        reason = _why_not(channel, bound)
        if reason is not None:
            self._publishing.refuse(channel, reason)
            return
        if bound.qos_class != QosClass.UNANNOUNCED:
            channel.segmented = bound.segmented
        self._open(channel)

    def _unanswered(self, subject: int) -> None:
        """What runs goes on without a broker; what was to begin does not."""
        for channel in self._publishing.channels.values():
            if channel.uid == subject and channel.state == "binding":
                self._publishing.refuse(channel, "no broker answered")

    def _refused(self, subject: int, reason: str) -> None:
        for channel in self._publishing.channels.values():
            if channel.uid == subject and channel.state == "binding":
                self._publishing.refuse(channel, reason)
        for subscriber in self._receiving.subscribers:
            if subject in _subjects(subscriber.subscription.types):
                self._receiving.refuse(subscriber, reason)

    def _overruled(self, subject: int, reason: str) -> None:
        for channel in self._publishing.channels.values():
            if channel.uid == subject:
                self._publishing.refuse(channel, reason)

    # -- what the protocols tell -------------------------------------------------------------------------------------

    def heed(self, notice: object) -> None:
        """Act on a notice of the protocols, and pass it on."""
        self.notices[type(notice).__name__] += 1
        match notice:
            case Configured(number):
                self._join(number)
            case Conflict(number, other, kept=False):
                self._leave(NumberLost(number, other))
            case CatalogReceived(catalog):
                self._received(catalog)
            case BrokerSeen(_, digest) if self.needs_broker and not self._has_catalog(digest):
                self.questions.ask_catalog(self._desk.now)
            case Unanswered("catalog") if self.catalog is None:
                self.questions.ask_catalog(self._desk.now)
            case Bound():
                self._bound(notice)
            case Refused(subject, reason):
                self._refused(subject, f"the broker knows no tag for it: {reason.name.lower().replace('_', ' ')}")
            case Unanswered("binding", subject):
                self._unanswered(subject)
            case ClassConflict(subject, announced, recorded, segmented):
                self._overruled(subject, _why_overruled(announced, recorded, segmented=segmented))
        if self._on_notice is not None:
            self._desk.call(self._on_notice, notice)

    def _join(self, number: int) -> None:
        self.number = number
        self._publishing.renumber(number)
        self.binding.join(number, self._desk.now)
        self.questions.join(number, self._desk.now)
        if self.catalog is not None:
            self.use(self.catalog)
        else:
            self.questions.ask_catalog(self._desk.now)

    def _has_catalog(self, digest: int) -> bool:
        return self.catalog is not None and digest == digest_of(self.catalog.text())

    def _received(self, catalog: Catalog) -> None:
        """Take over the broker's catalog, unless it is older than the node's own or another altogether."""
        if self.catalog is None or catalog.extends(self.catalog):
            self.use(catalog)
        elif not self.catalog.extends(catalog):
            for channel in self._publishing.channels.values():
                self._publishing.refuse(channel, "the broker has another catalog than this node")

    def _leave(self, trouble: NumberLost) -> None:
        """The number is gone: nothing may be sent under it any more."""
        self._publishing.tell_all(trouble)
        self.number = None
        self.needs_broker = True
        self._publishing.suspend()
        self._desk.clear()
        self.binding.leave()
        self.questions.leave()


def class_of(qos: QoS) -> QosClass:
    """The class that a quality of service belongs to.

    >>> from genus.bus import NonReal
    >>> class_of(NonReal()).name
    'NONE'
    """
    return QosClass.HARD if isinstance(qos, Hard) else QosClass.SOFT if isinstance(qos, Soft) else QosClass.NONE


def _span_ns(qos: QoS) -> int:
    if isinstance(qos, Hard):
        return nanoseconds(qos.period)
    return nanoseconds(qos.deadline) if isinstance(qos, Soft) else 0


def _why_overruled(announced: QosClass, recorded: QosClass, *, segmented: bool) -> str:
    if announced != recorded:
        return f"it was announced as {announced.name}, but is {recorded.name} by its first publisher"
    return f"its first publisher announced events {'in segments' if segmented else 'of one frame'}"


def _subjects(types: Iterable[type]) -> set[int]:
    return {subject_uid(name_of(cls)) for cls in types if is_event_type(cls) and cls is not Event}


def _why_not(channel: Publication, bound: Bound) -> str | None:
    """Why a publisher may not use a channel as it is bound."""
    if bound.etag != channel.etag:
        return f"the broker gives it tag {bound.etag}, this node's catalog {channel.etag}"
    if bound.qos_class == QosClass.UNANNOUNCED:
        return None
    if bound.qos_class != class_of(channel.qos):
        return f"its first publisher made it {bound.qos_class.name}; the broker's tables keep that"
    if channel.segmented and not bound.segmented:
        return "its first publisher announced events of one frame; these need several"
    return None
