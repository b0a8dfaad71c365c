"""What python-can's interfaces tell about frames that were sent: a table, read from the source of python-can 4.6.

An interface confirms a frame by its *echo*: the controller returns the frame when it was sent. `receive_own_messages`
asks for that; `Message.is_rx` is False for an echo where the interface marks it. `send` of most interfaces returns when
the driver has put the frame into its queue, which says nothing.
"""

from collections.abc import Mapping
from enum import StrEnum

import msgspec

from genus.errors import BusError


class Confirmation(StrEnum):
    """How a host learns that a frame was sent."""

    ECHO = "echo"
    """The controller returns it."""
    SEND = "send"
    """It was sent when `send` returned."""
    NONE = "none"
    """It does not: frames count as sent when the driver took them."""
    PROBE = "probe"
    """By its echo if one comes back for the first frame; else it does not."""


class InterfaceProfile(msgspec.Struct, frozen=True, kw_only=True):
    """What an interface of python-can tells."""

    confirmation: Confirmation
    asks_for_echo: bool = False
    """Whether it takes `receive_own_messages`."""
    returns_own: bool = False
    """Whether own frames come back although they are not needed; they are recognised and ignored."""
    marks_own: bool = True
    """Whether `is_rx` of an echo is False."""
    marks_local: bool = False
    """Whether `is_rx` is False for frames of other programs on this computer as well."""
    linux_errors: bool = False
    """Whether error frames have the classes of Linux (`linux/can/error.h`)."""
    filters: int = 0
    """How many acceptance filters it has that let error frames pass; 0 if python-can would filter, error frames too."""
    polled_passive: bool = False
    """Whether `bus.state` is PASSIVE for error passive; elsewhere it means that the interface only listens."""
    why: str
    """Where that is written in python-can, or why it is so."""


def _echo(why: str, *, filters: int = 0, **more: bool) -> InterfaceProfile:
    given = {"asks_for_echo": True, **more}
    return InterfaceProfile(confirmation=Confirmation.ECHO, why=why, filters=filters, **given)


def _none(why: str, **more: bool) -> InterfaceProfile:
    return InterfaceProfile(confirmation=Confirmation.NONE, why=why, **more)


PROFILES: Mapping[str, InterfaceProfile] = {
    "etas": _echo("OCI_CAN_MSG_FLAG_SELFRECEPTION", polled_passive=True),
    "gs_usb": _echo("`echo_id` of the device, always on", asks_for_echo=False, linux_errors=True),
    "ixxat": _echo("self-reception request (`srr`); `is_rx` stays True", marks_own=False),
    "kvaser": _echo("canMSG_LOCAL_TXACK"),
    "neovi": _echo("SPY_STATUS_TX_MSG"),
    "nixnet": _echo("`echo_tx` of the session"),
    "pcan": _echo("PCAN_MESSAGE_ECHO"),
    "socketcan": _echo("CAN_RAW_RECV_OWN_MSGS; MSG_DONTROUTE", marks_local=True, linux_errors=True, filters=512),
    "systec": _echo("MODE_TX_ECHO; `is_rx` stays True", marks_own=False),
    "vector": _echo("transmit receipts (XL_CAN_EV_TAG_TX_OK)"),
    "virtual": _echo("`receive_own_messages` of the queue in memory"),
    "udp_multicast": InterfaceProfile(
        confirmation=Confirmation.SEND,
        returns_own=True,
        marks_own=False,
        why="a datagram has left when `send` returns; there is no arbitration",
    ),
    "canalystii": _none("no echo"),
    "iscan": _none("no echo"),
    "neousys": _none("no echo"),
    "nican": _none("no echo"),
    "robotell": _none("no echo over the serial line"),
    "seeedstudio": _none("no echo over the serial line"),
    "serial": _none("no echo over the serial line"),
    "slcan": _none("no echo over the serial line"),
    "socketcand": _none("the server returns no echo", linux_errors=True),
    "usb2can": _none("no echo"),
}
"""The interfaces of python-can by name; `cantact` and those of plugins are not known."""

UNKNOWN = InterfaceProfile(
    confirmation=Confirmation.PROBE,
    asks_for_echo=True,
    linux_errors=True,
    why="not known: it is asked for echoes, and the first frame shows whether they come",
)
"""An interface that is not in the table."""


def profile_of(interface: str, confirm: str | None = None) -> InterfaceProfile:
    """What is known of an interface; `confirm` replaces how it confirms; BusError if that is neither echo nor send.

    >>> profile_of("slcan").confirmation, profile_of("slcan", "send").confirmation
    (<Confirmation.NONE: 'none'>, <Confirmation.SEND: 'send'>)
    """
    known = PROFILES.get(interface, UNKNOWN)
    if confirm is None:
        return known
    if confirm not in (Confirmation.ECHO, Confirmation.SEND):
        raise BusError(f"confirm is {confirm!r}; write echo or send")
    chosen = Confirmation(confirm)
    returns_own = known.returns_own or (chosen is Confirmation.SEND and interface == "gs_usb")
    return msgspec.structs.replace(
        known,
        confirmation=chosen,
        asks_for_echo=chosen is Confirmation.ECHO and (known.asks_for_echo or known.confirmation is Confirmation.NONE),
        returns_own=returns_own,
    )
