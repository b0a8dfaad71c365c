"""Small devices: C for micro-controllers, from a catalog and subscriptions.

`generate` makes a header and a source over a small runtime in C99, without heap, recursion or floating point: they
decode payloads, test subscriptions and call handlers, encode events, and have the acceptance filters of the controller.
"""

from typing import TYPE_CHECKING

from genus._lazy import lazy

if TYPE_CHECKING:
    from genus.devices._firmware import Firmware, generate
    from genus.devices._node_tables import DeviceChannel

__all__ = ["DeviceChannel", "Firmware", "generate"]

if not TYPE_CHECKING:
    __getattr__ = lazy(__name__)
