"""Who is there: the tokens of other participants, what they say about themselves, and the channels they announced."""

import json
import os
import socket
import sys
import threading
from collections import Counter
from collections.abc import Callable, Mapping
from typing import Any, NamedTuple

import msgspec

from genus.errors import BusError
from genus.net._link.control import control_key, decode_text, encode_text, is_uid
from genus.net._transport import Transport
from genus.records.internal import Rejections

HERE, GATE, CHANNEL = "here", "gate", "channel"
MAX_TOKENS = 10_000
"""The largest number of tokens of one kind that are remembered."""


class Participant(msgspec.Struct, frozen=True):
    """One that takes part in a network: its uid in hexadecimal digits, and what it says about itself."""

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
        """Return the other participants of the network."""
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
    """Return what this participant says about itself."""
    return {"host": socket.gethostname(), "pid": os.getpid(), "program": os.path.basename(sys.argv[0] or "python")}
