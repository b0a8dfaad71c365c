"""The options of python-can's interfaces: which there are, and what an address passes to one.

Most interfaces ignore keyword arguments that they do not know, so a misspelled option would have no effect and nobody
would notice. What an interface knows is read from its class: the parameters of its constructors, and those that their
docstrings describe (`:param NAME:`), because some interfaces take all of them as `**kwargs`.
"""

import inspect
import re
from typing import Any

from can.interface import _get_class_for_interface

import can
from genus.can._live.address import OWN_OPTIONS, CanAddress
from genus.errors import BusError, did_you_mean

_DOCUMENTED = re.compile(r":param\s+(?:[^:\n]*\s)?(\w+):")
_COMMON = frozenset({"channel", "can_filters"})
"""What every interface takes; one that names nothing else cannot be checked."""
_SWITCHES = {"yes": True, "no": False}
"""Switches are written as those of Genus; python-can knows True and False, and takes any other text as true."""
_NOT_OPTIONS = frozenset({"self", "args", "kwargs"})
_TIMING = frozenset(
    name for kind in (can.BitTiming, can.BitTimingFd) for name in inspect.signature(kind).parameters if name != "strict"
)
"""Bit timings in registers; python-can makes a `timing` of them if they begin with the clock frequency, `f_clock`."""


def known_options(interface: str) -> frozenset[str] | None:
    """The options that an interface of python-can knows; None if that cannot be told.

    >>> sorted(known_options("virtual"))  # doctest: +NORMALIZE_WHITESPACE
    ['can_filters', 'channel', 'preserve_timestamps', 'protocol', 'receive_own_messages', 'rx_queue_size']
    """
    try:
        cls = _get_class_for_interface(interface)
    except (can.CanError, ImportError, NotImplementedError):
        return None  # opening it says why
    names = {name for each in cls.__mro__ if each is not object for name in _parameters(each)}
    if not names - _COMMON:
        return None
    return frozenset(names | _TIMING if "timing" in names else names)


def _parameters(cls: type) -> set[str]:
    """The parameters that the constructor of one class has or describes."""
    constructor = vars(cls).get("__init__")
    if constructor is None:
        return set()
    documented = _DOCUMENTED.findall(f"{constructor.__doc__ or ''}\n{cls.__doc__ or ''}")
    return {*inspect.signature(constructor).parameters, *documented} - _NOT_OPTIONS


def interface_arguments(address: CanAddress) -> dict[str, Any]:
    """The keyword arguments for the interface of an address; BusError for an option that neither it nor Genus knows.

    An interface that sets the bit rate of its controller gets that of the address, unless bit timings are given.
    """
    known = known_options(address.interface)
    arguments: dict[str, Any] = {
        name: _SWITCHES.get(value, value) if name != "channel" else value for name, value in address.options.items()
    }
    if address.fd:
        arguments["fd"] = True
    if known is None:
        return arguments
    for name in address.options:
        if name not in known:
            options = sorted({*known, *OWN_OPTIONS} - {"can_filters"})
            raise BusError(
                f"can:{address.interface} has no option {name!r}; {did_you_mean(name, options)}"
                f"it has {', '.join(options)}"
            )
    if "bitrate" in known and not {"timing", "f_clock"} & arguments.keys():
        arguments["bitrate"] = address.timing.bitrate
        if address.fd and "data_bitrate" in known:
            arguments["data_bitrate"] = address.timing.data_bitrate
    return arguments
