"""Interest: what the participants of a network want, shown to all as tokens.

It does not decide who gets a packet, as patterns do that. Gateways read it to carry only what is wanted, and
publishers to know whether anybody listens. So a want may be wider than the subscription it is for, never narrower:
a long one is shown without its predicate, and a participant with very many shows their types only.
"""

import threading
from collections import Counter
from collections.abc import Callable, Iterable

import msgspec

from genus.errors import GenusError, Reasons
from genus.filters import Subscription, parse_again
from genus.filters.internal import rebuild
from genus.filters.types import AllOf
from genus.model import Event, Kind, is_event_type, pure_kind
from genus.net._envelope import MAX_HOPS
from genus.net._link.control import MAX_TEXT, control_key, decode_text, encode_text, is_uid
from genus.net._relay import Interest, passes
from genus.targets.python import PythonFilter

MAX_SHOWN = 200
"""A participant with more subscriptions than this shows their types only."""
MAX_INTERESTS = 20_000
"""The largest number of wants of others that are remembered; more are counted, and not known."""

MAX_FILTERS = 1000

Declare = Callable[[str], Callable[[], None]]


class InterestText(msgspec.Struct, frozen=True):
    """What a participant wants, as the text of its token; the fields are those of `Want`."""

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
        """Want what a subscription of this participant's bus matches."""
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
        """Want on behalf of others."""
        with self._lock:
            self._change([(interest.subscription, interest.origin, interest.hops) for interest in after], 1)
            self._change([(interest.subscription, interest.origin, interest.hops) for interest in before], -1)

    def own(self) -> list[Subscription]:
        """Return the subscriptions of this participant's bus."""
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
        """Tokens that are no wants, by reason."""

    def token(self, key: str, is_present: bool) -> bool:
        """A token appeared or is gone; returns whether the wants have changed."""
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
            return "a want that cannot be read"
        if not chunks[3].isdecimal() or len(chunks[3]) > 2 or int(chunks[3]) > MAX_HOPS:
            return f"a want of more than {MAX_HOPS} hops"
        text = decode_text(chunks[2])
        if text is None:
            return "a want whose text is too long or damaged"
        if len(self._texts) >= MAX_INTERESTS:
            return f"more than {MAX_INTERESTS} wants"
        return chunks[0], chunks[1], text, int(chunks[3])

    def _read(self, key: str) -> bool:
        """Make the want of a token's text, if its types are known here."""
        speaker, origin, text, hops = self._texts[key]
        try:
            subscription = parse_again(text)
        except (GenusError, RecursionError):
            self.refused["a want of types that are unknown here"] += 1
            return False
        self._interests[key] = Interest(speaker, origin, subscription, hops)
        return True

    def types_changed(self) -> bool:
        """Try again to read wants whose types were unknown; returns whether the wants have changed."""
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
        """Return what the others want."""
        with self._lock:
            return list(self._interests.values())


def _filter_of(text: str, cls: type[Event]) -> PythonFilter | None:
    """Return the test of a want for events of a class; None if it names types that the class does not conform to.

    So it does not matter how many types of that name there are.
    """
    types = [each for each in cls.__mro__ if issubclass(each, Event | Kind) and each is not Kind]
    try:
        return PythonFilter(parse_again(text, types))
    except (GenusError, RecursionError):
        return None
