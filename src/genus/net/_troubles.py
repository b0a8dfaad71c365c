"""What a network could not keep: given to `on_trouble` of channels and subscriptions, and to the log without one."""

import msgspec


class EventsLost(msgspec.Struct, frozen=True):
    """Events did not arrive, or were not sent.

    `type` is the name of their type, `count` how many, `sender` and `receiver` the uids of the two ends as far as they
    are known, in hexadecimal digits, and `reason` what is known about it. Both ends are told.
    """

    type: str
    count: int
    sender: str = ""
    receiver: str = ""
    reason: str = ""


class EventsUnread(msgspec.Struct, frozen=True):
    """Events arrived that could not be read, and were not delivered.

    `type` is the name of their type, `count` the number of packets, and `reason` says what is wrong with them; the
    link's `examples()` have the last packet of each reason. With a `count` of 0 no event was rejected yet: what another
    participant states about the type contradicts this program, or another one that was there before.
    """

    type: str
    count: int
    reason: str


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
