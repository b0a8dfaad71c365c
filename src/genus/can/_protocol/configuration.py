"""A node's way to its number, and its defence: the configuration protocol (COSMIC, FAMOUSO) and claims (as J1939's).

Without a number a node sends one nibble of its uid, from the highest on, whenever the broker says that uids beginning
as its own go on. The frames have no data and the same identifier for the same nibble, so that any number of nodes
may send at once. Arbitration lets the lowest nibble through; whoever hears a nibble of its own stage or a later
one takes its own back. A node that is out of the race begins anew when the broker has granted a number.

With a number a node claims it once a second, and when the broker calls the roll. If another node claims the same
number, the lower uid keeps it.
"""

from collections.abc import Callable
from random import Random

from genus.can._protocol.messages import (
    FIRST_STAGE,
    NIBBLE_BITS,
    Claim,
    Granted,
    Heartbeat,
    Nibble,
    Prefix,
    Restart,
    parse,
)
from genus.can._protocol.notices import (
    CLAIM_JITTER,
    CLAIM_PERIOD,
    COLLISION_PAUSE,
    DEFENCE_PAUSE,
    FAILURES_BEFORE_PAUSE,
    LONGEST_RETRY,
    RETRY,
    ROLL_CALL_SPREAD,
    STAGE_TIMEOUT,
    BrokerSeen,
    Configured,
    Conflict,
    Notice,
    NumbersExhausted,
)
from genus.can._wire.frame import UNCONFIGURED_NODE, Frame, ProtocolEtag
from genus.errors import BusError

LARGEST_UID = (1 << 64) - 1


def check_uid(uid: int) -> int:
    """A uid that can be one; BusError if it cannot.

    >>> check_uid(0)
    Traceback (most recent call last):
    genus.errors.BusError: uid is 0; it is a number of 64 bits, and not 0
    """
    if not 0 < uid <= LARGEST_UID:
        raise BusError(f"uid is {uid}; it is a number of 64 bits, and not 0")
    return uid


class Configuration:
    """State: a node's number, or how far it is on the way to one.

    `send` queues a frame by its identifier, `withdraw` takes one back that is still queued, `tell` gets notices. Nodes
    that might have the same uid need different seeds, or they claim in step and never hear each other.
    """

    def __init__(
        self,
        uid: int,
        *,
        send: Callable[[Frame], None],
        withdraw: Callable[[Frame], None],
        tell: Callable[[Notice], None],
        seed: int | None = None,
    ) -> None:
        self.uid = check_uid(uid)
        self.node: int | None = None
        """The node's number, None without one."""
        self._send, self._withdraw, self._tell = send, withdraw, tell
        self._random = Random(uid if seed is None else seed)
        self._queued: Frame | None = None
        self._failures = 0
        self._stage = FIRST_STAGE
        self._retry_at: int | None = None
        self._retry_after = RETRY
        self._resting = False
        self._claim_at: int | None = None
        self._defended_at: int | None = None
        self._broker: tuple[int, int] | None = None

    def start(self, now: int) -> None:
        """Ask for a number; again after a loss of power, when nothing is known any more."""
        self._forget_number()
        self._retry_after = RETRY
        self._ask(FIRST_STAGE, now)

    def adopt(self, node: int, now: int) -> None:
        """Have this number without asking, as one that was planned; it is claimed and defended as any other."""
        self._forget_number()
        self._become(node, now)

    def stop(self) -> None:
        """Have no number any more, and ask for none."""
        self._forget_number()

    def claim(self, now: int) -> None:
        """Claim the number at once, as after a time off the bus, when another node may have got it."""
        if self.node is not None:
            self._queue(Claim(self.node, self.uid).frame())
            self._claim_at = now + CLAIM_PERIOD - self._random.randrange(CLAIM_JITTER)

    def receive(self, frame: Frame, now: int) -> None:
        """A frame was heard."""
        match parse(frame):
            case Nibble(stage):
                if self._retry_at is not None and stage <= self._stage:
                    self._await(now)
            case Prefix() as found:
                if self._retry_at is not None:
                    self._heard_prefix(found, now)
            case Restart():
                if self._retry_at is not None:
                    self._begin_anew(now)
            case Granted(uid, node):
                self._heard_grant(uid, node, now)
            case Claim(node, uid):
                self._heard_claim(node, uid, now)
            case Heartbeat(epoch, digest, roll_call):
                self._heard_broker(epoch, digest, roll_call, now)

    def failed(self, frame: Frame, now: int) -> None:
        """A frame of this node was corrupted; a claim that was so several times may meet another's: it waits a little.

        Not at the first time: a claim that waits outside the controller is one that a roll call misses.
        """
        if frame is self._queued and frame.etag == ProtocolEtag.CLAIM:
            self._failures += 1
            if self._failures >= FAILURES_BEFORE_PAUSE:
                self._take_back()
                self._claim_at = now + 1 + self._random.randrange(COLLISION_PAUSE)

    @property
    def wake_at(self) -> int | None:
        """When something is to be done without a frame."""
        return self._claim_at if self._retry_at is None else self._retry_at

    def wake(self, now: int) -> None:
        """Repeat what is due."""
        if self._retry_at is not None and now >= self._retry_at:
            self._retry_after = min(2 * self._retry_after, LONGEST_RETRY)
            self._ask(FIRST_STAGE, now)
        elif self._claim_at is not None and now >= self._claim_at:
            self.claim(now)

    # -- without a number --------------------------------------------------------------------------------------------

    def _ask(self, stage: int, now: int) -> None:
        self._stage, self._resting = stage, False
        self._queue(Nibble(stage, self.uid >> NIBBLE_BITS * stage & 15).frame())
        self._retry_at = now + self._retry_after

    def _await(self, now: int) -> None:
        """Let others go on; begin anew if nothing is heard of them for too long."""
        if not self._resting:
            self._take_back()
            self._retry_at = now + RETRY

    def _heard_prefix(self, found: Prefix, now: int) -> None:
        self._retry_after = RETRY
        if self._resting:
            return
        if found.fits(self.uid):
            self._ask(found.stage - 1, now)
        else:
            self._stage = FIRST_STAGE
            self._await(now)

    def _begin_anew(self, now: int) -> None:
        self._retry_after = RETRY
        if not self._resting:
            self._ask(FIRST_STAGE, now)

    def _heard_grant(self, uid: int, node: int, now: int) -> None:
        if self._retry_at is None:
            if node == self.node and uid != self.uid:
                self._defend(now)
        elif uid != self.uid:
            self._begin_anew(now)
        elif node == UNCONFIGURED_NODE:
            self._rest(now)
        else:
            self._become(node, now)

    def _rest(self, now: int) -> None:
        """No number is free: keep still for a while, so that nodes that have a number waiting get theirs."""
        self._take_back()
        self._resting, self._retry_at = True, now + LONGEST_RETRY
        self._tell(NumbersExhausted())

    def _become(self, node: int, now: int) -> None:
        self._take_back()
        self.node, self._retry_at = node, None
        self._tell(Configured(node))
        self.claim(now)

    # -- with a number -----------------------------------------------------------------------------------------------

    def _heard_claim(self, node: int, uid: int, now: int) -> None:
        if uid == self.uid:
            self._tell(Conflict(node, uid, kept=True))
            self._defend(now)
        elif node == self.node:
            kept = self.uid < uid
            if not kept:
                self._forget_number()
            self._tell(Conflict(node, uid, kept))
            self._defend(now) if kept else self._give_way(node, now)

    def _give_way(self, node: int, now: int) -> None:
        """Claim the number a last time, so that the one who keeps it hears of the conflict, and ask for another."""
        self._send(Claim(node, self.uid).frame())
        self.start(now)

    def _defend(self, now: int) -> None:
        """Claim at once, but not so often that two defenders fill the bus."""
        if self._defended_at is None or now - self._defended_at >= DEFENCE_PAUSE:
            self._defended_at = now
            self.claim(now)

    def _heard_broker(self, epoch: int, digest: int, roll_call: bool, now: int) -> None:
        if self._broker != (epoch, digest):
            self._broker = epoch, digest
            self._tell(BrokerSeen(epoch, digest))
        if roll_call and self._claim_at is not None:
            self._claim_at = min(self._claim_at, now + self._random.randrange(ROLL_CALL_SPREAD))

    def _forget_number(self) -> None:
        self._take_back()
        self.node = self._claim_at = self._retry_at = None

    def _queue(self, frame: Frame) -> None:
        self._take_back()
        self._queued, self._failures = frame, 0
        self._send(frame)

    def _take_back(self) -> None:
        if self._queued is not None:
            self._withdraw(self._queued)
            self._queued = None


# The broker's side of the configuration protocol: one uid at a time, nibble by nibble.
#
# It takes turns with the nodes: a nibble counts only for the stage asked for, and not while the broker's own frame
# waits, for then it was not sent in answer to it. So what losers of an earlier arbitration send too late does no harm.
# If no node goes on, everybody is asked to begin anew.


class Granting:
    """State: the nibbles of the uid that is being asked for.

    `post` sends a frame; `grant` gives the number for a uid, 0 if there is none, None if it cannot be granted now.
    """

    def __init__(self, post: Callable[[Frame], None], grant: Callable[[int, int], int | None]) -> None:
        self._post, self._grant = post, grant
        self._is_open = False
        self._reply: Frame | None = None
        self._begin()

    def _begin(self) -> None:
        self._awaited, self._prefix = FIRST_STAGE, 0
        self.wake_at: int | None = None
        """When the stage is given up."""

    def open(self) -> None:
        """Ask nodes without a number to begin."""
        self.close()
        self._is_open = True
        self._say(Restart().frame())

    def close(self) -> None:
        """Listen to nobody."""
        self._is_open, self._reply = False, None
        self._begin()

    def hear(self, nibble: Nibble, now: int) -> bool:
        """A node sent a nibble; False if it comes too late, or too early."""
        if not self._is_open or self._reply is not None or nibble.stage != self._awaited:
            return False
        self.wake_at = None
        self._prefix |= nibble.nibble << NIBBLE_BITS * nibble.stage
        if nibble.stage == 0:
            self._finish(now)
        else:
            self._awaited -= 1
            self._say(Prefix(nibble.stage, self._prefix).frame())
        return True

    def sent(self, frame: Frame, now: int) -> None:
        """A frame went through; if it asked for a stage, the answer has so much time."""
        if frame == self._reply:
            self._reply = None
            self.wake_at = None if self._awaited == FIRST_STAGE else now + STAGE_TIMEOUT

    def wake(self, now: int) -> None:
        """Nobody went on: ask everybody to begin anew."""
        if self.wake_at is not None and now >= self.wake_at:
            self._begin()
            self._say(Restart().frame())

    def _finish(self, now: int) -> None:
        uid = self._prefix
        self._begin()
        number = self._grant(uid, now) if uid else None
        self._say(Restart().frame() if number is None else Granted(uid, number).frame())

    def _say(self, frame: Frame) -> None:
        self._reply = frame
        self._post(frame)
