"""What arrives on the connections of an `ipc:` bus: packets for the mailbox, and frames about patterns and tokens.

Bytes of other processes never raise: a frame that cannot be used is counted by reason. If the frames cannot be told
apart any more, `FramingLost` closes that connection.
"""

from collections import Counter
from collections.abc import Callable
from functools import partial
from typing import Any, Final

from genus.errors import Reasons
from genus.net._ipc.outbox import Outbox
from genus.net._ipc.peer import (
    DECLARE,
    DONE,
    HELLO,
    KEPT,
    KEY,
    KINDS,
    LOST,
    MAX_SHOWN,
    PACKET,
    STATE,
    SUBSCRIBE,
    UNDECLARE,
    UNSUBSCRIBE,
    VERSION,
    FramingLost,
    Hello,
    Peer,
    State,
    Subscribe,
    TokenBoard,
    decode_body,
    encode_frame,
)
from genus.net._ipc.queues import DeliveringMailbox, Item, NumberedKey
from genus.targets.topics import ZENOH

MAILBOX_FULL: Final = "the mailbox of a receiver is full"
_PACKETS: Final = frozenset({PACKET, KEPT})
_MAX_LOST: Final = 1 << 32


class Inbox:
    """Handles the frames of all connections, in the thread that reads them."""

    def __init__(self, outbox: Outbox, mailbox: DeliveringMailbox, board: TokenBoard) -> None:
        self._outbox = outbox
        self._mailbox = mailbox
        self._board = board
        self.rejected = Reasons()
        self._handlers: dict[int, Callable[[Peer, int, Any], None]] = {
            HELLO: self._hello,
            STATE: self._state,
            SUBSCRIBE: self._subscribe,
            UNSUBSCRIBE: self._unsubscribe,
            DECLARE: self._declare,
            UNDECLARE: self._undeclare,
            KEY: self._key,
            LOST: self._lost,
            DONE: self._done,
        }

    def feed(self, peer: Peer, data: bytes) -> bool:
        """Handle bytes of a peer; whether reading may go on.

        Raises:
            FramingLost: The bytes are no frames.
        """
        items: list[Item] = []
        kept, keys = 0, peer.keys
        for kind, number, envelope, body in peer.reader.feed(data):
            if kind in _PACKETS and (key := keys.get(number)) is not None:
                items.append((key, envelope, body))
                kept += kind == KEPT
            else:
                self._handle(peer, kind, number, body)
        return self._mailbox.put(items, kept) if items else True

    def _handle(self, peer: Peer, kind: int, number: int, body: bytes) -> None:
        if not peer.name and kind != HELLO:
            raise FramingLost("a connection that does not begin with hello")
        handler = self._handlers.get(kind)
        if handler is None:
            known = "packet of a key that was not told" if kind in _PACKETS else "frame of an unknown kind"
            self.rejected[known] += 1
        elif (found := decode_body(kind, body)) is None:
            self.rejected[f"malformed frame: {KINDS[kind]}"] += 1
        else:
            handler(peer, number, found)

    def gone(self, peer: Peer) -> None:
        """A peer has left: its tokens go after the packets that it sent."""
        self._mailbox.call(partial(self._board.replace, peer, ()))

    @property
    def has_lost(self) -> bool:
        """Whether packets were dropped here that the sender was not told of."""
        return self._mailbox.has_lost

    def tell_lost(self) -> None:
        """Tell other processes which of their packets were dropped here."""
        by_owner: dict[object, dict[int, int]] = {}
        for key, count in self._mailbox.take_lost().items():
            by_owner.setdefault(key.owner, {})[key.number] = count
        with self._outbox.lock:
            for peer in [each for each in self._outbox.peers if each in by_owner]:
                peer.queue.tell(encode_frame(LOST, by_owner[peer]))
                self._outbox.send(peer)

    # -- frames --------------------------------------------------------------------------------------------------------

    def _hello(self, peer: Peer, number: int, hello: Hello) -> None:
        if peer.name:
            self.rejected["second hello"] += 1
            return
        if hello.version != VERSION:
            raise FramingLost("a process with another version of the frames")
        peer.name = hello.name or "?"

    def _state(self, peer: Peer, number: int, state: State) -> None:
        patterns = {pattern: kept for pattern, kept in state.patterns if self._is_pattern(pattern)}
        tokens = [token for token in state.tokens if self._is_key(token)]
        if len(patterns) > MAX_SHOWN or len(tokens) > MAX_SHOWN:
            self.rejected["state with too much in it"] += 1
            return
        peer.tokens = set(tokens)
        self._mailbox.call_first(partial(self._board.replace, peer, tokens))
        with self._outbox.lock:
            peer.replace_patterns(list(patterns))
            peer.is_known = True
            self._outbox.renew()
            self._outbox.send_kept(peer, [pattern for pattern, kept in patterns.items() if kept])
            self._outbox.changed.notify_all()

    def _subscribe(self, peer: Peer, number: int, asked: Subscribe) -> None:
        with self._outbox.lock:
            if self._is_pattern(asked.pattern) and self._is_few(len(peer.patterns)):
                peer.add_pattern(asked.pattern)
                self._outbox.renew()
            peer.queue.tell(encode_frame(DONE, True, number))
            self._outbox.send_kept(peer, [asked.pattern] if asked.kept else [])

    def _unsubscribe(self, peer: Peer, number: int, pattern: str) -> None:
        with self._outbox.lock:
            peer.remove_pattern(pattern)
            self._outbox.renew()

    def _declare(self, peer: Peer, number: int, token: str) -> None:
        if self._is_key(token) and self._is_few(len(peer.tokens)):
            peer.tokens.add(token)
            self._mailbox.call_first(partial(self._board.declare, peer, token))

    def _undeclare(self, peer: Peer, number: int, token: str) -> None:
        peer.tokens.discard(token)
        self._mailbox.call_first(partial(self._board.undeclare, peer, token))

    def _key(self, peer: Peer, number: int, key: str) -> None:
        if number in peer.keys:
            self.rejected["number of a key that was told before"] += 1
        elif self._is_key(key) and self._is_few(len(peer.keys)):
            peer.keys[number] = NumberedKey(peer, number, key)

    def _lost(self, peer: Peer, number: int, counts: dict[int, int]) -> None:
        with self._outbox.lock:
            by_key = Counter({key: count for each, count in counts.items()
                              if (key := self._outbox.key(each)) and 0 < count < _MAX_LOST})  # fmt: skip
            self._outbox.losses.add_counts(by_key, MAILBOX_FULL)

    def _done(self, peer: Peer, number: int, _: bool) -> None:
        with self._outbox.lock:
            peer.answered = max(peer.answered, number)
            peer.is_late = False
            self._outbox.changed.notify_all()

    def _is_pattern(self, text: str) -> bool:
        return self._is_valid(ZENOH.is_pattern(text))

    def _is_key(self, text: str) -> bool:
        return self._is_valid(ZENOH.is_key(text))

    def _is_valid(self, valid: bool) -> bool:
        self.rejected["invalid key or pattern"] += not valid
        return valid

    def _is_few(self, count: int) -> bool:
        self.rejected["too many keys, patterns or tokens"] += count >= MAX_SHOWN
        return count < MAX_SHOWN
