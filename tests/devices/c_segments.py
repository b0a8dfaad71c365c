"""The segmentation in C with the interface of the Python one."""

from collections import Counter
from ctypes import CDLL, create_string_buffer

from genus.can._wire.frame import Frame
from tests.devices.c_library import LARGE, node_library
from tests.devices.c_node import SEGMENT_RESULTS

FD_OPTION = "-DGENUS_DATA_BYTES=64"


def _library(capacity: int) -> CDLL:
    return node_library(*LARGE, *((FD_OPTION,) if capacity == 64 else ()))


def split_payload(payload: bytes, transfer_id: int, capacity: int = 8) -> list[bytes]:
    """The data of the frames that carry a payload."""
    library, data = _library(capacity), create_string_buffer(capacity)
    count = library.segment_count(len(payload))
    sizes = (library.segment(payload, len(payload), transfer_id, position, data) for position in range(count))
    return [data.raw[:size] for size in sizes]


class CReassembler:
    """Reassembles the transfers of one sender."""

    def __init__(self, timeout_ns: int, *, max_bytes: int = 16_384, capacity: int = 8) -> None:
        self._library = _library(capacity)
        self._timeout_ns = timeout_ns
        self._payload = create_string_buffer(max_bytes)
        self._handle = self._library.receiver_new(max_bytes)

    def __del__(self) -> None:
        self._library.receiver_free(self._handle)

    def receive(self, frame: Frame, now: int) -> bytes | None:
        """The payload that a frame completes, if any."""
        data = frame.data
        result = self._library.receiver_receive(self._handle, data, len(data), now, self._timeout_ns)
        if SEGMENT_RESULTS[result] != "complete":
            return None
        size = self._library.receiver_payload(self._handle, self._payload)
        return self._payload.raw[:size]

    @property
    def counts(self) -> Counter[str]:
        """The number of dropped frames and transfers by reason."""
        found = {name: self._library.receiver_count(self._handle, n) for n, name in enumerate(SEGMENT_RESULTS)}
        return Counter({name: count for name, count in found.items() if count})
