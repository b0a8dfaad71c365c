"""Networks: buses between processes, over zenoh and over MQTT, and gateways between them."""

from typing import TYPE_CHECKING

from genus._lazy import lazy

if TYPE_CHECKING:
    from genus.net._ipc import open_ipc

__all__ = ["open_ipc"]

if not TYPE_CHECKING:
    __getattr__ = lazy(
        __name__,
        _ipc="open_ipc",
    )
