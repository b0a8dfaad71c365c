"""Who is there, and what is wanted: the tokens of participants.

Who is there: the tokens of other participants, what they say about themselves, and the channels they announced.

Interest: what the participants of a network want, shown to all as tokens.

It does not decide who gets a packet, as patterns do that. Gateways read it to carry only what is wanted, and
publishers to know whether anybody listens. So an interest may be wider than the subscription it is for, never narrower:
a long one is shown without its predicate, and a participant with very many shows their types only.
"""

import json
import os
import socket
import sys
import threading
from collections import Counter
from collections.abc import Callable, Iterable, Mapping
from typing import Any, NamedTuple

import msgspec

from genus.errors import BusError, GenusError, Reasons
from genus.filters import Subscription, parse_again
from genus.filters.internal import rebuild
from genus.filters.types import AllOf
from genus.model import Event, Kind, is_event_type, pure_kind
from genus.net._envelope import MAX_HOPS, Interest, passes
from genus.net._link.messages import MAX_TEXT, control_key, decode_text, encode_text, is_uid
from genus.net._transport import Transport
from genus.records.internal import Rejections
from genus.targets.python import PythonFilter

HERE, GATE, CHANNEL = "here", "gate", "channel"
MAX_TOKENS = 10_000
"""The largest number of tokens of one kind that are remembered."""


class Participant(msgspec.Struct, frozen=True):
    """Another program on a network: its uid in hexadecimal digits, and what it says about itself."""

    uid: str
    about: Mapping[str, Any]


class AnnouncedChannel(NamedTuple):
    """A channel that a participant has announced: its uid, the name of the type, and the quality of service as text."""

    uid: str
    type: str
    qos: str


class Presence:
    """State: the tokens of the other participants, and who watches them."""

    def __init__(self, transport: Transport, realm: str, uid: str, rejections: Rejections) -> None:
        self._transport, self._realm, self._uid, self._rejections = transport, realm, uid, rejections
        self._participants: dict[str, Participant] = {}
        self._tokens: dict[str, dict[tuple[str, str], None]] = {}
        self._watchers: dict[str, list[Callable[[str, str, bool], None]]] = {}
        self._lock = threading.Lock()
        self._sees_channels = False
        self._shown: Counter[str] = Counter()
        """How often each channel was announced here."""
        self._ends: dict[str, Callable[[], None]] = {}

    def open(self) -> None:
        """Watch the others, and show this participant to them."""
        for what in (HERE, GATE):
            self._transport.watch(control_key(self._realm, what, self._transport.dialect.rest))
        self.show(HERE, json.dumps(about_this_process()))

    def participants(self) -> list[Participant]:
        return list(self._participants.values())

    def show(self, what: str, text: str) -> Callable[[], None]:
        """Show a token to all while this process lives; returns a function to end it."""
        return self._transport.declare(control_key(self._realm, what, self._uid, encode_text(text)))

    def show_channel(self, type: str, qos: str) -> Callable[[], None]:
        """Show a channel that was announced here until all that announced it have ended it.

        Nothing is shown if there are too many tokens already.
        """
        text = f"{qos} {type}"
        with self._lock:
            self._shown[text] += 1
            is_first = self._shown[text] == 1
        if is_first:
            try:
                self._ends[text] = self.show(CHANNEL, text)
            except BusError as problem:
                self._rejections.add(f"a channel that others cannot see: {problem}")
        return lambda: self._end_channel(text)

    def _end_channel(self, text: str) -> None:
        with self._lock:
            self._shown[text] -= 1
            end = None if self._shown[text] else self._ends.pop(text, None)
        if end is not None:
            end()

    def channels(self) -> list[AnnouncedChannel]:
        """Return the channels that the other participants have announced; they are watched from the first call on."""
        with self._lock:
            is_watched, self._sees_channels = self._sees_channels, True
        if not is_watched:
            self._transport.watch(control_key(self._realm, CHANNEL, self._transport.dialect.rest))
        with self._lock:
            shown = [(uid, *text.partition(" ")) for uid, text in self._tokens.get(CHANNEL, ())]
        return [AnnouncedChannel(uid, name, qos) for uid, qos, _, name in shown]

    def watch(self, what: str, changed: Callable[[str, str, bool], None]) -> Callable[[], None]:
        """Call a function with uid, text and presence of the tokens of others; returns a function to end it."""
        with self._lock:
            self._watchers.setdefault(what, []).append(changed)
            present = list(self._tokens.get(what, ()))
        for uid, text in present:
            changed(uid, text, True)
        return lambda: self._watchers[what].remove(changed)

    def token(self, key: str, is_present: bool) -> bool:
        """A token appeared or is gone; returns whether it changes who is there."""
        what, _, rest = key.removeprefix(control_key(self._realm, "")).partition("/")
        uid, _, chunk = rest.partition("/")
        text = decode_text(chunk)
        if what not in (HERE, GATE, CHANNEL) or not is_uid(uid) or text is None:
            self._rejections.add("a token that cannot be read", key)
            return False
        if uid == self._uid or not self._remember(what, uid, text, is_present):
            return False
        if what == HERE:
            self._note_participant(uid, text, is_present)
        for changed in list(self._watchers.get(what, ())):
            changed(uid, text, is_present)
        return what == HERE

    def _remember(self, what: str, uid: str, text: str, is_present: bool) -> bool:
        """Note a token; returns whether others are to be told of it."""
        with self._lock:
            present = self._tokens.setdefault(what, {})
            if not is_present:
                return (uid, text) in present and present.pop((uid, text)) is None
            if len(present) >= MAX_TOKENS and (uid, text) not in present:
                self._rejections.add(f"more than {MAX_TOKENS} tokens `{what}`")
                return False
            present[uid, text] = None
            return True

    def _note_participant(self, uid: str, text: str, is_present: bool) -> None:
        try:
            about = msgspec.json.decode(text, type=dict[str, Any])
        except (msgspec.MsgspecError, RecursionError, UnicodeDecodeError):
            about = {}
        if is_present:
            self._participants[uid] = Participant(uid, about)
        else:
            self._participants.pop(uid, None)


def about_this_process() -> dict[str, Any]:
    return {"host": socket.gethostname(), "pid": os.getpid(), "program": os.path.basename(sys.argv[0] or "python")}


MAX_SHOWN = 200
"""A participant with more subscriptions than this shows their types only."""
MAX_INTERESTS = 20_000
"""The largest number of interests of others that are remembered; more are counted, and not known."""

MAX_FILTERS = 1000

Declare = Callable[[str], Callable[[], None]]


class InterestText(msgspec.Struct, frozen=True):
    """What a participant wants, as the text of its token; for the fields see `Interest`."""

    speaker: str
    origin: str
    text: str
    hops: int


class LocalInterest:
    """State: what this participant wants, and the tokens that show it."""

    def __init__(self, declare: Declare, realm: str, uid: str) -> None:
        self._declare, self._realm, self._uid = declare, realm, uid
        self._texts: Counter[tuple[str, str, int]] = Counter()
        self._types: Counter[tuple[str, str, int]] = Counter()
        self._shown: dict[tuple[str, str, int], Callable[[], None]] = {}
        self._subscriptions: Counter[Subscription] = Counter()
        self._lock = threading.RLock()

    def add(self, subscription: Subscription) -> None:
        with self._lock:
            self._subscriptions[subscription] += 1
            self._change([(subscription, self._uid, 0)], 1)

    def remove(self, subscription: Subscription) -> None:
        """Want it no more."""
        with self._lock:
            self._subscriptions[subscription] -= 1
            if not self._subscriptions[subscription]:
                del self._subscriptions[subscription]
            self._change([(subscription, self._uid, 0)], -1)

    def replace(self, before: Iterable[Interest], after: Iterable[Interest]) -> None:
        with self._lock:
            self._change([(interest.subscription, interest.origin, interest.hops) for interest in after], 1)
            self._change([(interest.subscription, interest.origin, interest.hops) for interest in before], -1)

    def own(self) -> list[Subscription]:
        with self._lock:
            return list(self._subscriptions)

    def _change(self, interests: list[tuple[Subscription, str, int]], by: int) -> None:
        for subscription, origin, hops in interests:
            for table, asked in ((self._texts, subscription), (self._types, _types_only(subscription))):
                entry = shown_text(asked), origin, hops
                table[entry] += by
                if not table[entry]:
                    del table[entry]
        self._show(self._texts if len(self._texts) <= MAX_SHOWN else self._types)

    def _show(self, wanted: Counter[tuple[str, str, int]]) -> None:
        for entry in wanted.keys() - self._shown.keys():
            text, origin, hops = entry
            self._shown[entry] = self._declare(
                control_key(self._realm, "want", self._uid, origin, encode_text(text), str(hops))
            )
        for entry in self._shown.keys() - wanted.keys():
            self._shown.pop(entry)()


def asks_for_kind(subscription: Subscription) -> bool:
    """Return whether a subscription is compiled to the keys of all classes that have a kind."""
    types = subscription.types
    return any(not is_event_type(cls) or (subscription.exact and pure_kind(cls) is not None) for cls in types)


def _types_only(subscription: Subscription) -> Subscription:
    return rebuild(AllOf(subscription.types), exact=subscription.exact)


def shown_text(subscription: Subscription) -> str:
    """Return the text of a subscription, or of a wider one that is short enough to be shown."""
    text = str(subscription)
    if len(text) > MAX_TEXT:
        text = str(_types_only(subscription))
    return text if len(text) <= MAX_TEXT else "Event"


class RemoteInterest:
    """State: what the other participants want, by their tokens."""

    def __init__(self, realm: str, uid: str) -> None:
        self._root = control_key(realm, "want") + "/"
        self._uid = uid
        self._texts: dict[str, tuple[str, str, str, int]] = {}
        self._interests: dict[str, Interest] = {}
        self._lock = threading.Lock()
        self._filters: dict[tuple[type, str], PythonFilter | None] = {}
        self.refused = Reasons()
        """Tokens that show no interest, by reason."""

    def token(self, key: str, is_present: bool) -> bool:
        """A token appeared or is gone; returns whether the interest has changed."""
        with self._lock:
            if not is_present:
                return self._texts.pop(key, None) is not None and self._interests.pop(key, None) is not None
            return key not in self._texts and self._add(key)

    def _add(self, key: str) -> bool:
        parsed = self._parse(key)
        if isinstance(parsed, str):
            self.refused[parsed] += 1
            return False
        if parsed[0] == self._uid:
            return False
        self._texts[key] = parsed
        return self._read(key)

    def _parse(self, key: str) -> tuple[str, str, str, int] | str:
        chunks = key.removeprefix(self._root).split("/")
        if len(chunks) != 4 or not is_uid(chunks[0]) or not is_uid(chunks[1]):
            return "an interest that cannot be read"
        if not chunks[3].isdecimal() or len(chunks[3]) > 2 or int(chunks[3]) > MAX_HOPS:
            return f"an interest of more than {MAX_HOPS} hops"
        text = decode_text(chunks[2])
        if text is None:
            return "an interest whose text is too long or damaged"
        if len(self._texts) >= MAX_INTERESTS:
            return f"more than {MAX_INTERESTS} interests"
        return chunks[0], chunks[1], text, int(chunks[3])

    def _read(self, key: str) -> bool:
        """Make the interest of a token's text, if its types are known here."""
        speaker, origin, text, hops = self._texts[key]
        try:
            subscription = parse_again(text)
        except (GenusError, RecursionError):
            self.refused["an interest of types that are unknown here"] += 1
            return False
        self._interests[key] = Interest(speaker, origin, subscription, hops)
        return True

    def types_changed(self) -> bool:
        """Try again to read interests whose types were unknown; returns whether the interest has changed."""
        with self._lock:
            unread = [key for key in self._texts if key not in self._interests]
            read = [key for key in unread if self._read(key)]
            return bool(read)

    def may_concern_kind(self, key: str) -> bool:
        """Return whether a token may be of a subscription to a kind, whose classes are not all known to its speaker."""
        with self._lock:
            interest = self._interests.get(key)
            is_unread = interest is None and key in self._texts
        return is_unread or (interest is not None and asks_for_kind(interest.subscription))

    def texts(self) -> list[InterestText]:
        """Return what the others want, as they say it; also of types that are unknown here."""
        with self._lock:
            return [InterestText(*parsed) for parsed in self._texts.values()]

    def wanted_by(self, event: Event) -> set[str]:
        """Return the participants that want an event, by uid."""
        return {interest.speaker for interest in self.texts() if self.is_wanted(interest.text, event)}

    def asked_of(self, cls: type[Event]) -> list[str]:
        """Return the texts of subscriptions to a type, or to one above it that is not all events."""
        texts = dict.fromkeys(interest.text for interest in self.texts())
        return [text for text in texts if text.partition(" ")[0] != "Event" and self._filter(text, cls) is not None]

    def _filter(self, text: str, cls: type[Event]) -> PythonFilter | None:
        if (cls, text) not in self._filters:
            if len(self._filters) >= MAX_FILTERS:
                self._filters.clear()
            self._filters[cls, text] = _filter_of(text, cls)
        return self._filters[cls, text]

    def is_wanted(self, text: str, event: Event) -> bool:
        """Return whether a subscription, as text, matches an event."""
        test = self._filter(text, type(event))
        return test is not None and passes(test, event)

    def all(self) -> list[Interest]:
        with self._lock:
            return list(self._interests.values())


def _filter_of(text: str, cls: type[Event]) -> PythonFilter | None:
    """Return the test of an interest for events of a class; None if it names types that the class does not conform to.

    So it does not matter how many types of that name there are.
    """
    types = [each for each in cls.__mro__ if issubclass(each, Event | Kind) and each is not Kind]
    try:
        return PythonFilter(parse_again(text, types))
    except (GenusError, RecursionError):
        return None
