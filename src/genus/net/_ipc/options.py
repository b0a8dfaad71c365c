"""The part of an address behind `ipc:`: the name of the bus, and the bounds of its queues."""

from typing import Annotated, Final

from genus.bus.types import Overflow
from genus.net._options import RECEIVE_OVERFLOW, SEND_OVERFLOW, NetOptions, read_options, whole

CAPACITY: Final = 10_000


class IpcOptions(NetOptions, frozen=True):
    """The bounds of the queues of an `ipc:` bus. All are also bounded to 64 MB and one packet."""

    overflow: Annotated[Overflow, SEND_OVERFLOW, "when the queue for a receiver, in the publisher, is full"] = (
        "drop_oldest"
    )
    capacity: Annotated[int, whole(1), "packets in the queue for each receiver"] = CAPACITY
    receive_overflow: Annotated[Overflow, RECEIVE_OVERFLOW, "when packets come faster than handlers take them"] = (
        "drop_oldest"
    )
    receive_capacity: Annotated[int, whole(1), "packets that wait for handlers"] = CAPACITY


def parse_address(rest: str) -> tuple[str, IpcOptions]:
    """Name and options of `ipc:NAME?option=value&...`; the name `genus` if there is none.

    Raises:
        BusError: An option is unknown or its value is wrong.

    >>> name, options = parse_address("plant?overflow=block&capacity=100")
    >>> name, options.overflow, options.capacity, options.receive_overflow
    ('plant', 'block', 100, 'drop_oldest')
    """
    name, _, query = rest.partition("?")
    return name or "genus", IpcOptions(**read_options(IpcOptions, "ipc", query))
