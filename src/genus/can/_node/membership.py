"""A node's membership of a bus: its number, its catalog, the binding of its channels, and its acceptance filters."""

from collections import Counter
from collections.abc import Callable, Iterable

from genus.bus import Hard, Soft
from genus.bus.types import QoS
from genus.can._node.agreement import Agreement
from genus.can._node.channels import Interest, TxChannel
from genus.can._node.problems import NodeIdLost
from genus.can._node.rx import Receiver
from genus.can._node.tx import Transmitter
from genus.can._node.tx_queue import Context
from genus.can._protocol.binding import BindingClient
from genus.can._protocol.broker_tables import EtagSource
from genus.can._protocol.catalog_queries import CatalogClient
from genus.can._protocol.configuration import ConfigurationClient
from genus.can._protocol.messages import Announce, QosClass, RefusalReason, Signature, catalog_digest, parse_message
from genus.can._protocol.notices import (
    BindingRefused,
    Bound,
    BrokerSeen,
    CatalogReceived,
    ClassConflict,
    Configured,
    NodeIdConflict,
    RequestUnanswered,
)
from genus.can._protocol.signatures import SAME_CATALOG, conflict_between
from genus.can._wire.frame import ETAG_MASK, RESERVED_ETAGS, Frame, subject_uid
from genus.catalog import Catalog
from genus.errors import BusError, GenusError
from genus.filters import Subscription
from genus.model import Event, is_event_type, name_of, nanoseconds, subtypes
from genus.targets.can import SharedFilters

PROTOCOL_FILTER = (0, ETAG_MASK & ~(RESERVED_ETAGS - 1))
"""Accepts all traffic of the middleware itself."""


class Membership:
    """State: the number and catalog of a node, and how far its channels are bound.

    A node with a number of its own claims it, and binds by its catalog alone. To others the broker gives the number,
    binds their channels, and sends the catalog if they have none or an older one.
    """

    def __init__(
        self,
        uid: int,
        context: Context,
        tx: Transmitter,
        rx: Receiver,
        on_notice: Callable[[object], object] | None,
        *,
        number: int | None,
        catalog: Catalog | None,
        etags: EtagSource,
        banks: int | None,
        seed: int | None,
    ) -> None:
        self.number = number
        self.catalog = catalog
        self._started = False
        self.needs_broker = number is None
        self.notices: Counter[str] = Counter()
        """Notices of the protocols, by kind."""
        self._etags = etags
        self._etag_blocks = 0
        """How many blocks of event tags there were when the filters were set."""
        self._without_etag: dict[str, str] = {}
        """Why a type has no event tag."""
        self._context = context
        self._tx = tx
        self._rx = rx
        self._on_notice = on_notice
        self._banks = banks
        self._filters: SharedFilters | None = None
        self._accepted: tuple[tuple[int, int], ...] = ()
        self.configuration = ConfigurationClient(
            uid, send=context.queue.add_frame, withdraw=context.queue.remove_frame, notify=self.handle_notice, seed=seed
        )
        self.binding = BindingClient(
            send=context.queue.add_frame, withdraw=context.queue.remove_frame, notify=self.handle_notice
        )
        self.questions = CatalogClient(
            send=context.queue.add_frame, withdraw=context.queue.remove_frame, notify=self.handle_notice
        )
        self._lost: NodeIdLost | None = None
        """The number that it had, while it has none."""
        self.agreement = Agreement(context, tx, rx, number=lambda: self.number, catalog=lambda: self.catalog)

    def start(self) -> None:
        """Claim the node's number, or ask for one."""
        self._started = True
        self._set_filters()
        if self.number is not None:
            self.configuration.adopt(self.number, self._context.now)
        else:
            self.configuration.start(self._context.now)

    def receive(self, frame: Frame) -> None:
        self.configuration.receive(frame, self._context.now)
        if isinstance(signature := parse_message(frame), Signature):
            self.find_new_etags(signature.etag)
        self.agreement.receive(frame)
        if self.needs_broker:
            self.binding.receive(frame, self._context.now)
            self.questions.receive(frame, self._context.now)

    def receive_announcement(self, frame: Frame) -> None:
        """Receive the announcement of another publisher: its event tag, and whether its events come in segments."""
        announcement = parse_message(frame)
        if isinstance(announcement, Announce):
            self.find_new_etags(announcement.etag)
            self._rx.set_segmented(announcement.etag, announcement.segmented, announcement.node)

    # -- catalog and filters -----------------------------------------------------------------------------------------

    def use(self, catalog: Catalog) -> None:
        binding = [channel for channel in self._tx.channels.values() if channel.state == "binding"]
        asked = [cls for interest in self._rx.interests for cls in interest.subscription.types]
        self._set_catalog(self._with_etags(catalog, [*asked, *(channel.cls for channel in binding)]))
        for channel in binding:
            self._bind_or_refuse(channel)

    def _set_catalog(self, catalog: Catalog) -> None:
        """Read event tags by a catalog, and set the filters for the subscriptions there are."""
        self.catalog, self._etag_blocks = catalog, catalog.etag_blocks
        self._filters = SharedFilters(catalog, banks=self._banks, always=(PROTOCOL_FILTER,))
        for interest in self._rx.interests:
            self.register_classes(interest.subscription)
        self._rx.use(catalog)
        for interest in self._rx.interests:
            self._add_filter(interest)
        self._set_filters()
        self.agreement.use()

    def register_classes(self, subscription: Subscription) -> None:
        """Make the classes of this process known to the catalog before it would declare others of the same names."""
        if self.catalog is not None:
            for cls in subscription.types:
                if cls is not Event:
                    self.catalog.use_classes(*subtypes(cls))

    def add(self, interest: Interest) -> None:
        """Let what a subscription matches pass the acceptance filters, once there is a catalog."""
        if not self._take_etags(interest.subscription.types):
            self._add_filter(interest)
            self._set_filters()
            self.agreement.review(interest)

    def remove(self, interest: Interest) -> None:
        if self._filters is not None and interest.filter_handle is not None:
            self._filters.remove(interest.filter_handle)
            interest.filter_handle = None
        self._set_filters()

    def _add_filter(self, interest: Interest) -> None:
        if self._filters is None or self.catalog is None:
            return
        try:
            for cls in interest.subscription.types:
                self.catalog.code(cls)
            has_etags = self._check_etags(interest.subscription.types)
            interest.filter_handle = self._filters.add(interest.subscription) if has_etags else None
        except GenusError as problem:
            self._rx.refuse(interest, str(problem))
            return
        interest.state = "ready" if has_etags else "binding"
        if self.needs_broker:
            for subject in _subjects(interest.subscription.types):
                self.binding.bind(subject, self._context.now)

    def _set_filters(self) -> None:
        accepted: tuple[tuple[int, int], ...] = (PROTOCOL_FILTER,) if self._filters is None else self._filters.pairs
        if accepted != self._accepted and self._started:
            self._accepted = accepted
            self._context.accept(accepted)
            self._rx.set_filters(accepted)

    # -- event tags --------------------------------------------------------------------------------------------------

    def _with_etags(self, catalog: Catalog, types: Iterable[type]) -> Catalog:
        """The catalog with event tags for types, as far as there are any left; with a broker, that gives them."""
        for name in [] if self.needs_broker else _event_types(types):
            if name in catalog and not catalog.has_etag(name):
                try:
                    catalog = self._etags.give(catalog, name)
                except (GenusError, OSError) as problem:
                    self._without_etag[name] = str(problem)
        return catalog

    def _take_etags(self, types: Iterable[type]) -> bool:
        """Give event tags to types that have none, if there is a catalog; returns whether the filters were set anew."""
        catalog = None if self.catalog is None else self._with_etags(self.catalog, types)
        if catalog is None or (catalog is self.catalog and catalog.etag_blocks == self._etag_blocks):
            return False
        self._set_catalog(catalog)
        return True

    def _check_etags(self, types: Iterable[type]) -> bool:
        """Whether types have event tags by now; BusError if a node without a broker finds none for one of them."""
        assert self.catalog is not None
        without = [name for name in _event_types(types) if not self.catalog.has_etag(name)]
        if without and not self.needs_broker:
            raise BusError(self._without_etag.get(without[0], f"{without[0]} has no event tag"))
        return not without

    def find_new_etags(self, announced: int) -> None:
        """Somebody announces or reports a channel: take over event tags that were given meanwhile.

        A publisher reports its channel before its first event, which then passes the filters.
        """
        if self.needs_broker or self.catalog is None:
            return
        try:
            unknown = self.catalog.type_of(announced) is None
            catalog = self._etags.reread(self.catalog) if unknown else self.catalog
        except GenusError:
            self._rx.dropped["catalog not read again"] += 1
            return
        if catalog is not self.catalog or catalog.etag_blocks != self._etag_blocks:
            self._set_catalog(catalog)

    # -- binding -----------------------------------------------------------------------------------------------------

    def bind(self, channel: TxChannel) -> None:
        """Bind a channel as far as possible now; BusError if the medium cannot keep its quality of service."""
        if self._started and self.catalog is not None and self.number is not None:
            self._take_etags([channel.cls])
            if self._check_etags([channel.cls]):
                self._tx.fit(channel, self.catalog)
            if self.needs_broker:
                self.binding.bind(channel.uid, self._context.now)
            else:
                self._open(channel)

    def unbind(self, channel: TxChannel) -> None:
        self.binding.forget(channel.uid, self._context.now)

    def _bind_or_refuse(self, channel: TxChannel) -> None:
        try:
            self.bind(channel)
        except GenusError as problem:
            self._tx.refuse(channel, str(problem))

    def _open(self, channel: TxChannel) -> None:
        """The channel is bound: announce it on the bus and open it for events."""
        self.binding.announce(
            channel.uid,
            channel.etag,
            class_of(channel.qos),
            segmented=channel.segmented,
            size=255 if channel.largest is None else channel.largest,
            span_us=_span_ns(channel.qos) // 1000,
        )
        self._tx.open(channel)
        self.agreement.review()

    def _bound(self, bound: Bound) -> None:
        if self._lacks_etag(bound.subject):  # the broker gave it just now
            self.questions.ask_catalog(self._context.now)
            return
        for channel in self._tx.channels.values():
            if channel.uid == bound.subject and channel.state != "ready":
                self._complete_binding(channel, bound)
        for interest in self._rx.interests:
            if bound.subject in _subjects(interest.subscription.types) and interest.filter_handle is not None:
                interest.state = "ready"
        if bound.qos_class != QosClass.UNANNOUNCED:
            self._rx.set_segmented(bound.etag, bound.segmented)

    def _lacks_etag(self, subject: int) -> bool:
        """Whether a subject that this node asked for has no event tag in its catalog, which is older than the reply."""
        names = {channel.name for channel in self._tx.channels.values() if channel.uid == subject}
        asked = (cls for interest in self._rx.interests for cls in interest.subscription.types)
        names |= {name for name in _event_types(asked) if subject_uid(name) == subject}
        return any(self.catalog is None or not self.catalog.has_etag(name) for name in names)

    def _complete_binding(self, channel: TxChannel, bound: Bound) -> None:
        reason = _why_not(channel, bound)
        if reason is not None:
            self._tx.refuse(channel, reason)
            return
        if bound.qos_class != QosClass.UNANNOUNCED:
            channel.segmented = bound.segmented
        self._open(channel)

    def _unanswered(self, subject: int) -> None:
        """No broker answered: channels that are bound go on, new ones are refused."""
        for channel in self._tx.channels.values():
            if channel.uid == subject and channel.state == "binding":
                self._tx.refuse(channel, "no broker answered")

    def _refused(self, subject: int, reason: str) -> None:
        for channel in self._tx.channels.values():
            if channel.uid == subject and channel.state == "binding":
                self._tx.refuse(channel, reason)
        for interest in self._rx.interests:
            if subject in _subjects(interest.subscription.types):
                self._rx.refuse(interest, reason)

    def _overruled(self, subject: int, reason: str) -> None:
        for channel in self._tx.channels.values():
            if channel.uid == subject:
                self._tx.refuse(channel, reason)

    # -- notices of the protocols -----------------------------------------------------------------------------------

    def handle_notice(self, notice: object) -> None:
        """Act on a notice of the protocols, and pass it on to `on_notice`."""
        self.notices[type(notice).__name__] += 1
        match notice:
            case Configured(number):
                self._join(number)
            case NodeIdConflict(number, other, kept=False):
                self._leave(NodeIdLost(number, other))
            case CatalogReceived(catalog):
                self._received(catalog)
            case BrokerSeen(_, digest) if self.needs_broker and not self._has_catalog(digest):
                self.questions.ask_catalog(self._context.now)
            case RequestUnanswered("catalog") if self.catalog is None:
                self.questions.ask_catalog(self._context.now)
            case Bound():
                self._bound(notice)
            case BindingRefused(subject, reason):
                self._refused(subject, _why_refused(reason))
            case RequestUnanswered("binding", subject):
                self._unanswered(subject)
            case ClassConflict(subject, announced, recorded, segmented):
                self._overruled(subject, _why_overruled(announced, recorded, segmented=segmented))
        if self._on_notice is not None:
            self._context.call(self._on_notice, notice)

    def _join(self, number: int) -> None:
        self.number, self._lost = number, None
        self._tx.renumber(number)
        self.binding.join(number, self._context.now)
        self.questions.join(number, self._context.now)
        self.agreement.join()
        if self.catalog is not None:
            self.use(self.catalog)
        else:
            self.questions.ask_catalog(self._context.now)

    @property
    def why_without_number(self) -> str:
        """Why it has no number, if it lost one; else an empty text."""
        if self._lost is None:
            return ""
        return (
            f"this node lost its number {self._lost.number} to the node with uid {self._lost.other_uid:016x}, and no "
            "broker has given it another; give each node a number of its own, or start a broker with `genus can broker`"
        )

    def _has_catalog(self, digest: int) -> bool:
        return self.catalog is not None and digest == catalog_digest(self.catalog.text())

    def _received(self, catalog: Catalog) -> None:
        """Use the broker's catalog, unless it is older than the node's own, or a different one."""
        own = self.catalog
        if own is None or catalog.extends(own):
            self.use(catalog)
        elif not own.extends(catalog):
            self._refuse_conflicts(own, catalog)

    def _refuse_conflicts(self, own: Catalog, brokers: Catalog) -> None:
        """The broker has a different catalog: refuse what it contradicts, or what it does not have."""
        for channel in self._tx.channels.values():
            if (reason := _broker_conflict(own, brokers, [channel.name])) is not None:
                self._tx.refuse(channel, reason)
        for interest in self._rx.interests:
            if (reason := _broker_conflict(own, brokers, _event_types(interest.subscription.types))) is not None:
                self._rx.refuse(interest, reason)

    def _leave(self, problem: NodeIdLost) -> None:
        """The node lost its number: send nothing until it has another."""
        self._tx.report_to_all(problem)
        self.number, self._lost = None, problem
        self.needs_broker = True
        self._tx.suspend(self.why_without_number)
        self._context.clear()
        self.agreement.leave()
        self.binding.leave()
        self.questions.leave()


def _broker_conflict(own: Catalog, brokers: Catalog, names: Iterable[str]) -> str | None:
    """Why types cannot be used where the broker has a different catalog; None if they are the same there."""
    for name in names:
        reason = conflict_between(brokers, own, name)
        if reason is None and name in own and (name not in brokers or not own.has_etag(name)):
            reason = f"{name} is {'not in it' if name not in brokers else 'without an event tag here'}"
        if reason is not None:
            return f"the broker has another catalog than this node ({reason}); {SAME_CATALOG}"
    return None


def class_of(qos: QoS) -> QosClass:
    """Return the class of a quality of service.

    >>> from genus.bus import BestEffort
    >>> class_of(BestEffort()).name
    'NONE'
    """
    return QosClass.HARD if isinstance(qos, Hard) else QosClass.SOFT if isinstance(qos, Soft) else QosClass.NONE


def _span_ns(qos: QoS) -> int:
    if isinstance(qos, Hard):
        return nanoseconds(qos.period)
    return nanoseconds(qos.deadline) if isinstance(qos, Soft) else 0


def _why_refused(reason: RefusalReason) -> str:
    if reason is RefusalReason.EXHAUSTED:
        return "the broker's catalog has no event tag left for it; use another bus, with a catalog of its own types"
    return f"the broker knows no tag for it: {reason.name.lower().replace('_', ' ')}"


def _why_overruled(announced: QosClass, recorded: QosClass, *, segmented: bool) -> str:
    if announced != recorded:
        return f"it was announced as {announced.name}, but is {recorded.name} by its first publisher"
    return f"its first publisher announced events {'in segments' if segmented else 'of one frame'}"


def _event_types(types: Iterable[type]) -> list[str]:
    return [name_of(cls) for cls in types if is_event_type(cls)]


def _subjects(types: Iterable[type]) -> set[int]:
    return {subject_uid(name_of(cls)) for cls in types if is_event_type(cls) and cls is not Event}


def _why_not(channel: TxChannel, bound: Bound) -> str | None:
    """Why a publisher cannot use a channel as it is bound; None if it can."""
    if bound.etag != channel.etag:
        return f"the broker gives it tag {bound.etag}, this node's catalog {channel.etag}"
    if bound.qos_class == QosClass.UNANNOUNCED:
        return None
    if bound.qos_class != class_of(channel.qos):
        return f"its first publisher made it {bound.qos_class.name}; the broker's tables keep that"
    if channel.segmented and not bound.segmented:
        return "its first publisher announced events of one frame; these need several"
    return None
