"""The configuration protocol (COSMIC, FAMOUSO), which gives numbers to nodes, and claims (as in J1939) to defend them.

A node without a number sends one nibble of its uid, the highest first, whenever the broker asks for uids with the same
prefix. These frames have no data and the same identifier for the same nibble, so that any number of nodes may send at
once. Arbitration lets the lowest nibble through; a node that receives a nibble of its own stage or a later one removes
its own frame from the queue. A node that lost starts again when the broker has granted a number.

A node with a number claims it once a second, and when the broker calls the roll. If another node claims the same
number, the one with the lower uid keeps it.

The broker finds one uid at a time, nibble by nibble, and takes turns with the nodes: a nibble counts only for the stage
it asked for, and not while its own frame waits, because then the nibble is not an answer to it. So late frames of nodes
that lost an earlier arbitration do no harm. If no node continues, all nodes are asked to start again.
"""

from collections.abc import Callable
from random import Random

from genus.can._protocol.messages import (
    FIRST_STAGE,
    NIBBLE_BITS,
    Claim,
    Heartbeat,
    Nibble,
    NumberGrant,
    Prefix,
    Restart,
    parse_message,
)
from genus.can._protocol.notices import (
    CLAIM_JITTER,
    CLAIM_PERIOD,
    COLLISION_BACKOFF,
    DEFENCE_INTERVAL,
    FAILURES_BEFORE_BACKOFF,
    MAX_RETRY,
    RETRY,
    ROLL_CALL_SPREAD,
    STAGE_TIMEOUT,
    BrokerSeen,
    Configured,
    NodeIdConflict,
    Notice,
    NumbersExhausted,
)
from genus.can._wire.frame import UNCONFIGURED_NODE, Frame, ProtocolEtag
from genus.errors import BusError

MAX_UID = (1 << 64) - 1


def check_uid(uid: int) -> int:
    """Return the uid; BusError if it is 0 or has more than 64 bits.

    >>> check_uid(0)
    Traceback (most recent call last):
    genus.errors.BusError: uid is 0; it must be a number of 64 bits other than 0
    """
    if not 0 < uid <= MAX_UID:
        raise BusError(f"uid is {uid}; it must be a number of 64 bits other than 0")
    return uid


class ConfigurationClient:
    """State: a node's number, or the progress of its configuration.

    `send` queues a frame by its identifier, `withdraw` removes one that is still queued, `notify` gets notices. Nodes
    that might have the same uid need different seeds; otherwise their claims stay synchronous, and collide.
    """

    def __init__(
        self,
        uid: int,
        *,
        send: Callable[[Frame], None],
        withdraw: Callable[[Frame], None],
        notify: Callable[[Notice], None],
        seed: int | None = None,
    ) -> None:
        self.uid = check_uid(uid)
        self.node: int | None = None
        """The node's number; None without one."""
        self._send, self._withdraw, self._notify = send, withdraw, notify
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
        """Ask for a number; any number the node had is forgotten."""
        self._forget_number()
        self._retry_after = RETRY
        self._ask(FIRST_STAGE, now)

    def adopt(self, node: int, now: int) -> None:
        """Use a planned number without asking; it is claimed and defended like any other."""
        self._forget_number()
        self._become(node, now)

    def stop(self) -> None:
        """Give up the number, and ask for none."""
        self._forget_number()

    def claim(self, now: int) -> None:
        """Claim the number at once, for example after bus-off, when another node may have got it."""
        if self.node is not None:
            self._queue(Claim(self.node, self.uid).frame())
            self._claim_at = now + CLAIM_PERIOD - self._random.randrange(CLAIM_JITTER)

    def receive(self, frame: Frame, now: int) -> None:
        match parse_message(frame):
            case Nibble(stage):
                if self._retry_at is not None and stage <= self._stage:
                    self._wait_for_others(now)
            case Prefix() as found:
                if self._retry_at is not None:
                    self._on_prefix(found, now)
            case Restart():
                if self._retry_at is not None:
                    self._restart(now)
            case NumberGrant(uid, node):
                self._on_grant(uid, node, now)
            case Claim(node, uid):
                self._on_claim(node, uid, now)
            case Heartbeat(epoch, digest, roll_call):
                self._on_heartbeat(epoch, digest, roll_call, now)

    def failed(self, frame: Frame, now: int) -> None:
        """A frame of this node was corrupted; a claim that failed several times is delayed, as it may collide.

        It is not delayed at its first failure, because a claim that is not in the controller misses a roll call.
        """
        if frame is self._queued and frame.etag == ProtocolEtag.CLAIM:
            self._failures += 1
            if self._failures >= FAILURES_BEFORE_BACKOFF:
                self._withdraw_queued()
                self._claim_at = now + 1 + self._random.randrange(COLLISION_BACKOFF)

    @property
    def wake_at(self) -> int | None:
        return self._claim_at if self._retry_at is None else self._retry_at

    def wake(self, now: int) -> None:
        if self._retry_at is not None and now >= self._retry_at:
            self._retry_after = min(2 * self._retry_after, MAX_RETRY)
            self._ask(FIRST_STAGE, now)
        elif self._claim_at is not None and now >= self._claim_at:
            self.claim(now)

    # -- without a number --------------------------------------------------------------------------------------------

    def _ask(self, stage: int, now: int) -> None:
        self._stage, self._resting = stage, False
        self._queue(Nibble(stage, self.uid >> NIBBLE_BITS * stage & 15).frame())
        self._retry_at = now + self._retry_after

    def _wait_for_others(self, now: int) -> None:
        """Let other nodes continue; start again if they send nothing for too long."""
        if not self._resting:
            self._withdraw_queued()
            self._retry_at = now + RETRY

    def _on_prefix(self, found: Prefix, now: int) -> None:
        self._retry_after = RETRY
        if self._resting:
            return
        if found.fits(self.uid):
            self._ask(found.stage - 1, now)
        else:
            self._stage = FIRST_STAGE
            self._wait_for_others(now)

    def _restart(self, now: int) -> None:
        self._retry_after = RETRY
        if not self._resting:
            self._ask(FIRST_STAGE, now)

    def _on_grant(self, uid: int, node: int, now: int) -> None:
        if self._retry_at is None:
            if node == self.node and uid != self.uid:
                self._defend(now)
        elif uid != self.uid:
            self._restart(now)
        elif node == UNCONFIGURED_NODE:
            self._rest(now)
        else:
            self._become(node, now)

    def _rest(self, now: int) -> None:
        """No number is free: pause, so that nodes whose numbers are still in the tables get theirs."""
        self._withdraw_queued()
        self._resting, self._retry_at = True, now + MAX_RETRY
        self._notify(NumbersExhausted())

    def _become(self, node: int, now: int) -> None:
        self._withdraw_queued()
        self.node, self._retry_at = node, None
        self._notify(Configured(node))
        self.claim(now)

    # -- with a number -----------------------------------------------------------------------------------------------

    def _on_claim(self, node: int, uid: int, now: int) -> None:
        if uid == self.uid:
            self._notify(NodeIdConflict(node, uid, kept=True))
            self._defend(now)
        elif node == self.node:
            kept = self.uid < uid
            if not kept:
                self._forget_number()
            self._notify(NodeIdConflict(node, uid, kept))
            self._defend(now) if kept else self._give_way(node, now)

    def _give_way(self, node: int, now: int) -> None:
        """Claim the number a last time, so that the node that keeps it detects the conflict, and ask for another."""
        self._send(Claim(node, self.uid).frame())
        self.start(now)

    def _defend(self, now: int) -> None:
        """Claim at once, but not so often that two nodes fill the bus with claims."""
        if self._defended_at is None or now - self._defended_at >= DEFENCE_INTERVAL:
            self._defended_at = now
            self.claim(now)

    def _on_heartbeat(self, epoch: int, digest: int, roll_call: bool, now: int) -> None:
        if self._broker != (epoch, digest):
            self._broker = epoch, digest
            self._notify(BrokerSeen(epoch, digest))
        if roll_call and self._claim_at is not None:
            self._claim_at = min(self._claim_at, now + self._random.randrange(ROLL_CALL_SPREAD))

    def _forget_number(self) -> None:
        self._withdraw_queued()
        self.node = self._claim_at = self._retry_at = None

    def _queue(self, frame: Frame) -> None:
        self._withdraw_queued()
        self._queued, self._failures = frame, 0
        self._send(frame)

    def _withdraw_queued(self) -> None:
        if self._queued is not None:
            self._withdraw(self._queued)
            self._queued = None


class ConfigurationServer:
    """State: the nibbles of the uid that the broker is asking for.

    `send` queues a frame; `grant` gives the number for a uid, 0 if none is free, None if it cannot be granted now.
    """

    def __init__(self, send: Callable[[Frame], None], grant: Callable[[int, int], int | None]) -> None:
        self._send, self._grant = send, grant
        self._is_open = False
        self._reply: Frame | None = None
        self._begin()

    def _begin(self) -> None:
        self._awaited, self._prefix = FIRST_STAGE, 0
        self.wake_at: int | None = None
        """When the stage times out."""

    def open(self) -> None:
        """Ask nodes without a number to start."""
        self.close()
        self._is_open = True
        self._send_reply(Restart().frame())

    def close(self) -> None:
        self._is_open, self._reply = False, None
        self._begin()

    def receive(self, nibble: Nibble, now: int) -> bool:
        """Process a nibble of a node; False if it comes out of turn."""
        if not self._is_open or self._reply is not None or nibble.stage != self._awaited:
            return False
        self.wake_at = None
        self._prefix |= nibble.nibble << NIBBLE_BITS * nibble.stage
        if nibble.stage == 0:
            self._finish(now)
        else:
            self._awaited -= 1
            self._send_reply(Prefix(nibble.stage, self._prefix).frame())
        return True

    def sent(self, frame: Frame, now: int) -> None:
        """A frame was sent; if it asked for a stage, the timeout of the answer begins."""
        if frame == self._reply:
            self._reply = None
            self.wake_at = None if self._awaited == FIRST_STAGE else now + STAGE_TIMEOUT

    def wake(self, now: int) -> None:
        """Ask all nodes to start again if the stage timed out."""
        if self.wake_at is not None and now >= self.wake_at:
            self._begin()
            self._send_reply(Restart().frame())

    def _finish(self, now: int) -> None:
        uid = self._prefix
        self._begin()
        number = self._grant(uid, now) if uid else None
        self._send_reply(Restart().frame() if number is None else NumberGrant(uid, number).frame())

    def _send_reply(self, frame: Frame) -> None:
        self._reply = frame
        self._send(frame)
