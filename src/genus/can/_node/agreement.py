"""Agreement on catalogs: a node signs what it publishes, and compares what others sign with its own catalog.

Of two catalogs that contradict each other a node cannot know which one is wrong. Where there is a broker, that decides.
Without one, a channel that is new gives way: a publisher whose channel another node objects to within a second gives it
up; a channel that was in use before is not stopped by a node that joins with another catalog. Readers never decode what
they do not agree with, and everybody is told.
"""

from collections.abc import Callable
from functools import partial

from genus.can._node.channels import Interest, TxChannel
from genus.can._node.rx import Receiver
from genus.can._node.tx import Transmitter
from genus.can._node.tx_queue import Context
from genus.can._protocol.catalog_queries import CatalogServer
from genus.can._protocol.messages import (
    Heartbeat,
    Objection,
    ObjectionReason,
    Question,
    QuestionKind,
    Signature,
    parse_message,
)
from genus.can._protocol.notices import BROKER_TIMEOUT, PROBATION
from genus.can._protocol.signatures import MAX_PUBLISHERS, SAME_CATALOG, Conflict, SignatureWatch
from genus.can._wire.frame import BROKER_NODE, Frame, Identifier, Priority, ProtocolEtag
from genus.catalog import Catalog


class Agreement:
    """State: what a node knows of the catalogs of others, and the questions about its own channels."""

    def __init__(
        self,
        context: Context,
        tx: Transmitter,
        rx: Receiver,
        *,
        number: Callable[[], int | None],
        catalog: Callable[[], Catalog | None],
    ) -> None:
        self._context, self._tx, self._rx, self._number = context, tx, rx, number
        self._told: set[tuple[int, int, str]] = set()
        self._has_asked = False
        """Whether all publishers were asked for their signatures under this number."""
        self._broker_at: int | None = None
        """When the broker was heard last."""
        self._watch = SignatureWatch(
            send=context.queue.add_frame,
            node=number,
            catalog=catalog,
            is_relevant=self._is_relevant,
            on_conflict=self._handle_conflict,
        )
        self._answers = CatalogServer(self._send_answer, self._answer, self._answer_identifier)
        rx.agrees = self._watch.agrees

    # -- changes of this node ----------------------------------------------------------------------------------------

    def join(self) -> None:
        """The node has a number: ask all publishers what their events are, if it reads any."""
        self._has_asked = False
        self._ask_all()

    def _ask_all(self) -> None:
        number = self._number()
        if number is not None and self._rx.interests and not self._has_asked:
            self._has_asked = True
            self._context.queue.add_frame(Question(number, 0, QuestionKind.SIGNATURE, 0).frame())

    def leave(self) -> None:
        """The node has no number: answer nothing."""
        self._answers.clear()

    def use(self) -> None:
        """The catalog is another one, or has grown."""
        self._rx.doubt()
        self._watch.use(self._context.now)

    def review(self, interest: Interest | None = None) -> None:
        """There is a new channel, or a new subscription, which is told of conflicts that are known."""
        if interest is not None:
            self._ask_all()
            for conflict in self._watch.conflicts:
                self._rx.tell_wrong_catalog(conflict.names, conflict.node, _advise(conflict.text), interest)
        self._watch.review(self._context.now)

    # -- frames of others --------------------------------------------------------------------------------------------

    def receive(self, frame: Frame) -> None:
        match parse_message(frame):
            case Signature() as signature:
                self._rx.doubt(signature.node, signature.etag)
                self._watch.receive(signature, self._context.now)
            case Objection(publisher=publisher) as objection if publisher == self._number():
                self._handle_objection(objection)
            case Question(kind=QuestionKind.SIGNATURE, number=0):
                self._tx.reporter.report_soon()
            case Question(kind=QuestionKind.SIGNATURE | QuestionKind.LAYOUT, number=to) as question:
                if to == self._number():
                    self._handle_question(question)
            case Heartbeat() as heartbeat:
                self._broker_at = self._context.now
                if heartbeat.roll_call:
                    self._tx.reporter.report_soon()
            case None if frame.etag == ProtocolEtag.ANSWER:
                self._watch.receive_layout(frame, self._context.now)

    @property
    def wake_at(self) -> int | None:
        return self._answers.wake_at

    def wake(self, now: int) -> None:
        self._answers.wake(now)

    # -- others contradict this node ---------------------------------------------------------------------------------

    def _is_relevant(self, name: str) -> bool:
        return self._rx.reads(name) or any(channel.name == name for channel in self._tx.channels.values())

    def _handle_conflict(self, conflict: Conflict) -> None:
        """What a publisher signed contradicts the catalog: object, and tell those it is about, once."""
        self._watch.object(conflict, self._context.now)
        key = (conflict.node, conflict.etag, conflict.text)
        if key in self._told or len(self._told) >= MAX_PUBLISHERS:
            return
        self._told.add(key)
        self._rx.tell_wrong_catalog(conflict.names, conflict.node, _advise(conflict.text))
        for channel in self._tx.channels.values():
            if channel.name in conflict.names:
                self._tx.tell_wrong_catalog(channel, conflict.node, _advise(conflict.text))

    # -- others object to this node ----------------------------------------------------------------------------------

    def _handle_objection(self, objection: Objection) -> None:
        channel = self._channel_of(objection.etag)
        if channel is None:
            return
        reason = self._describe(objection, channel)
        if objection.node == BROKER_NODE or (self._is_on_probation(channel) and not self._has_broker):
            self._tx.refuse(channel, reason)
        else:
            self._tx.tell_wrong_catalog(channel, objection.node, reason)

    def _is_on_probation(self, channel: TxChannel) -> bool:
        return channel.opened_at is None or self._context.now - channel.opened_at < PROBATION

    @property
    def _has_broker(self) -> bool:
        return self._broker_at is not None and self._context.now - self._broker_at < BROKER_TIMEOUT

    def _describe(self, objection: Objection, channel: TxChannel) -> str:
        who = "the broker" if objection.node == BROKER_NODE else f"node {objection.node}"
        known = self._watch.name_of(objection.subject, 32)
        match objection.reason:
            case ObjectionReason.OTHER_TYPE:
                there = known if known not in (None, channel.name) else "another type"
                what = f"event tag {channel.etag} is {there} there, and {channel.name} here"
            case ObjectionReason.OTHER_TAG:
                what = f"{channel.name} has another event tag there than {channel.etag}"
            case ObjectionReason.OTHER_LAYOUT:
                what = f"{channel.name} has other attributes there"
        return _advise(f"{who} has another catalog: {what}")

    # -- questions to this node --------------------------------------------------------------------------------------

    def _handle_question(self, question: Question) -> None:
        channel = self._channel_of(question.argument)
        if channel is None:
            return
        if question.kind is QuestionKind.SIGNATURE:
            self._tx.reporter.sign(channel)
        else:
            self._answers.ask(question)

    def _channel_of(self, etag: int) -> TxChannel | None:
        """Return the channel that is bound to an event tag, and not refused."""
        channels = self._tx.channels.values()
        return next(
            (each for each in channels if each.etag == etag and each.wire_layout and each.state != "refused"), None
        )

    def _answer(self, question: Question) -> bytes:
        channel = self._channel_of(question.argument)
        return b"" if channel is None or channel.wire_layout is None else channel.wire_layout.pack()

    def _answer_identifier(self) -> int:
        return Identifier(Priority.NONE, self._number() or 0, ProtocolEtag.ANSWER).pack()

    def _send_answer(self, frame: Frame) -> None:
        self._context.queue.add_frame(frame, partial(self._answers.sent, frame))


def _advise(text: str) -> str:
    return f"{text}; {SAME_CATALOG}"
