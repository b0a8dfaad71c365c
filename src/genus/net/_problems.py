"""What a network could not keep: given to `on_problem` of channels and subscriptions, and to the log without one."""

import logging

import msgspec

from genus.errors import Reasons, counted


class OnceLogger(logging.Logger):
    """State: a logger of one link, which logs each warning once: its text and error, whatever values are in it.

    What others send decides how often something goes wrong; the counters of the link have the numbers.
    """

    def __init__(self, name: str) -> None:
        super().__init__(name)
        self.parent = logging.getLogger(name)
        self._logged = Reasons()

    def filter(self, record: logging.LogRecord) -> bool:
        """Return whether a record is no warning, or the first of its sort."""
        error = record.exc_info[0] if record.exc_info else None
        return record.levelno < logging.WARNING or self._logged.add(f"{record.msg} {error}")

    def getChild(self, suffix: str) -> "OnceLogger":  # noqa: N802 - the name of the standard library
        """This logger: what libraries log by parts is counted together."""
        return self


class ReceiverFailures(Reasons):
    """How often the receiver of a transport raised, which by its contract it must not; each class is logged once."""

    def note(self, medium: str, problem: Exception) -> None:
        if self.add(f"failed: an error of the receiver ({type(problem).__name__})"):
            text = "%s: the receiver failed; further errors of this class are counted only"
            logging.getLogger("genus.net").error(text, medium, exc_info=problem)


class EventsLost(msgspec.Struct, frozen=True):
    """Events did not arrive, or were not sent.

    `type` is the name of their type, `count` how many, 0 if that is not known, `sender` and `receiver` the uids of the
    two ends as far as they are known, in hexadecimal digits, and `reason` what is known about it. Both ends are told.

    >>> print(EventsLost("Lamp", 2, reason="the receiver is gone"))
    2 events of Lamp were lost: the receiver is gone
    >>> print(EventsLost("Lamp", 0, "01234567", "89abcdef", "the server has restarted"))
    events of Lamp may be lost on the way from 01234567 to 89abcdef: the server has restarted
    """

    type: str
    count: int
    sender: str = ""
    receiver: str = ""
    reason: str = ""

    def __str__(self) -> str:
        way = f" from {self.sender}" * bool(self.sender) + f" to {self.receiver}" * bool(self.receiver)
        lost = f"{_of(self.count, self.type)} lost" if self.count else f"events of {self.type} may be lost"
        return f"{lost}{' on the way' * bool(way)}{way}: {self.reason or 'the reason is not known'}"


class EventsUnread(msgspec.Struct, frozen=True):
    """Events arrived that could not be read, and were not delivered.

    `type` is the name of their type, `count` the number of packets, and `reason` says what is wrong with them; the
    link's `examples()` have the last packet of each reason. With a `count` of 0 no event was rejected yet: what another
    participant states about the type contradicts this program, or another one that was there before.
    """

    type: str
    count: int
    reason: str

    def __str__(self) -> str:
        unread = f"{_of(self.count, self.type)} not read" if self.count else f"{self.type} may not be readable"
        return f"{unread}: {self.reason}"


class EventsLate(msgspec.Struct, frozen=True):
    """Events of a soft channel arrived after their deadline; those that had expired were not delivered.

    `worst_us` is the largest lateness, in microseconds after the deadline.
    """

    type: str
    count: int
    worst_us: int
    expired: int = 0
    sender: str = ""
    receiver: str = ""

    def __str__(self) -> str:
        expired = f"; {self.expired:,} had expired and were not delivered" if self.expired else ""
        return f"{_of(self.count, self.type)} late, by up to {self.worst_us / 1000:,.1f} ms{expired}"


def _of(count: int, type_: str) -> str:
    return f"{counted(count, 'event')} of {type_} {'was' if count == 1 else 'were'}"
