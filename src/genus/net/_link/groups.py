"""Queues that processes share, where the network has no shared subscriptions: the sender chooses one of a group.

Those who share a subscription show it by a token; whoever sends an event that it matches (its publisher, or the gateway
that brings it) sends it to one of them, in turn, under a key of that member. Packets of such a key are numbered from 1,
so that one that is lost is missed by its member and told to both ends. What comes to one that has left goes to another.
"""

import os
import threading
from collections import Counter
from collections.abc import Callable

from genus.bus._link import TroubleHandler
from genus.errors import BusError
from genus.model import Event
from genus.net._link.control import MOST_TEXT, QUEUE, control_key, decode_text, encode_text, is_uid
from genus.net._link.shared import SharedReception

GROUP = "group"
MOST_MEMBERS = 10_000
"""The largest number of members of all groups that are remembered; more are counted, and get nothing."""


class QueueReception(SharedReception):
    """Gives the events that were sent to this member of a group to its consumers; a gap is a loss here."""

    counts_all = True
    on_left: Callable[[Event], None]
    """Is called with an event that came after the consumers had left: another member gets it."""

    def has_been_interrupted(self, key: str, turn: int) -> bool:
        """It is asked for as long as the member is there."""
        return False

    def _give(self, event: Event) -> None:
        if not self._deliver(event):
            self.on_left(event)


class Member:
    """State: this participant as a member of a group."""

    def __init__(
        self, text: str, reception: QueueReception, on_trouble: Callable[[], list[TroubleHandler]], since: float
    ) -> None:
        self.text, self.reception, self.on_trouble, self.since = text, reception, on_trouble, since
        self.name = os.urandom(4).hex()


class QueueGroups:
    """State: the groups that are known, by the texts of their subscriptions, with their members: uid and name."""

    def __init__(self, realm: str, uid: str, is_wanted: Callable[[str, Event], bool]) -> None:
        self._realm, self._uid, self._is_wanted = realm, uid, is_wanted
        self.token_root = control_key(realm, GROUP) + "/"
        self.key_root = control_key(realm, QUEUE) + "/"
        self.members: dict[str, dict[tuple[str, str], None]] = {}
        self._own: dict[str, Member] = {}
        """By name; those that have left stay for a while, for what is under way."""
        self._turns: Counter[str] = Counter()
        self._lock = threading.Lock()
        self.refused: Counter[str] = Counter()

    def join(self, member: Member) -> str:
        """Take part in a group; returns the token that shows it."""
        if len(member.text) > MOST_TEXT:
            raise BusError(f"a queue that processes share has a subscription of at most {MOST_TEXT} characters")
        self._own[member.name] = member
        self._change(member.text, (self._uid, member.name), True)
        return f"{self.token_root}{self._uid}/{encode_text(member.text)}/{member.name}"

    def leave(self, member: Member) -> None:
        """Get nothing more of what is sent from now on."""
        self._change(member.text, (self._uid, member.name), False)

    def end(self, member: Member) -> None:
        """Take nothing more."""
        self._own.pop(member.name, None)

    def member_of(self, key: str) -> Member | None:
        """The member of this participant whose packets come under a key; None if it is no key of one."""
        if not key.startswith(f"{self.key_root}{self._uid}/"):
            return None
        return self._own.get(key.removeprefix(self.key_root).split("/", 2)[1])

    def root_of(self, member: Member) -> str:
        """The beginning of the keys of a member."""
        return f"{self.key_root}{self._uid}/{member.name}"

    def wanting(self, event: Event) -> list[str]:
        """The groups that an event goes to."""
        return [text for text in list(self.members) if self._is_wanted(text, event)]

    def next_of(self, text: str) -> tuple[str, str] | None:
        """The member of a group that gets the next event; None if there is none."""
        with self._lock:
            members = sorted(self.members.get(text, ()))
            self._turns[text] += bool(members)
            return members[self._turns[text] % len(members)] if members else None

    def deliver(self, name: str, event: Event) -> None:
        """Give an event that was published here to the consumers here."""
        if (own := self._own.get(name)) is not None:
            own.reception.deliverer(type(event))(event)

    def token(self, key: str, is_present: bool) -> None:
        """A member of a group has come, or is gone."""
        uid, chunk, name, *more = [*key.removeprefix(self.token_root).split("/"), "", ""]
        text = decode_text(chunk)
        if not is_uid(uid) or text is None or not name.isalnum() or len(more) != 2:
            self.refused["a group that cannot be read"] += 1
        elif uid != self._uid:
            self._change(text, (uid, name), is_present)

    def _change(self, text: str, member: tuple[str, str], is_present: bool) -> None:
        with self._lock:
            members = self.members.get(text, {})
            if not is_present:
                members.pop(member, None)
                if not members:
                    self.members.pop(text, None)
                    self._turns.pop(text, None)
            elif sum(map(len, self.members.values())) >= MOST_MEMBERS:
                self.refused[f"more than {MOST_MEMBERS} members of groups"] += 1
            else:
                self.members.setdefault(text, {})[member] = None
