"""The C runtime as a shared library: compiled once per process and set of options, called through ctypes."""

import ctypes
import os
import tempfile
from collections.abc import Iterable
from ctypes import CFUNCTYPE, POINTER, c_char_p, c_int, c_int64, c_uint8, c_uint32, c_uint64, c_void_p
from functools import cache
from hashlib import blake2b
from pathlib import Path

from genus.devices._firmware import NODE
from tests.devices.toolchain import RUNTIME, run
from tests.programs import need

SHIM = Path(__file__).parent / "c_station.c"
NODE_SOURCES = tuple(name for name in NODE if name.endswith(".c"))
"""The files of the node; the others of the runtime are about types and payloads."""
LARGE = (
    *("-DGENUS_CHANNELS=16", "-DGENUS_SLOTS=48", "-DGENUS_SUBJECTS=24", "-DGENUS_EVENTS=120"),
    *("-DGENUS_EVENT_BYTES=300", "-DGENUS_PUBLISHERS=200", "-DGENUS_TRANSFERS=160", "-DGENUS_CLOCK_SAMPLES=32"),
    *("-DGENUS_CLOCK_MASTERS=24", "-DGENUS_CLOCK_FORMERS=8", "-DGENUS_HARD_BYTES=64"),
)
"""Capacities for the largest system of the tests, and samples enough for exactly the Python node's clock."""

LoadCall = CFUNCTYPE(None, c_int, c_int, c_uint32, c_int, POINTER(c_uint8))
EventCall = CFUNCTYPE(c_int, c_int, c_int, c_int, POINTER(c_uint8))
NoticeCall = CFUNCTYPE(None, c_int, c_int, c_int, c_int, c_int, c_int, c_int64)
ClassCall = CFUNCTYPE(None, c_int, POINTER(c_uint8))
RandomCall = CFUNCTYPE(c_uint32, c_uint32)
LayoutCall = CFUNCTYPE(c_int, c_int, c_int)

_FRAME = (c_void_p, c_uint32, c_int, c_char_p, c_int64)
_SIGNATURES: dict[str, tuple[object, tuple[object, ...]]] = {
    "station_new": (c_void_p, (c_uint64, c_int, c_int, c_uint32, c_int64, c_uint32)),
    "station_data_bit": (None, (c_void_p, c_uint32)),
    "station_call": (None, (c_void_p, LoadCall, EventCall, NoticeCall, ClassCall, RandomCall, LayoutCall)),
    "station_init": (c_int, (c_void_p,)),
    "station_free": (None, (c_void_p,)),
    "station_size": (ctypes.c_size_t, ()),
    "station_add_slot": (c_int, (c_void_p, c_int, c_int, c_int, POINTER(c_int64), c_int, c_int, c_int, c_int)),
    "station_add_channel": (
        c_int,
        (c_void_p, c_uint64, c_int, c_int, c_int, c_int, c_int, c_uint32, c_int, c_int64, c_int64),
    ),
    "station_add_subject": (c_int, (c_void_p, c_uint64)),
    "station_clear_blocks": (None, (c_void_p,)),
    "station_add_block": (None, (c_void_p, c_int, c_int, c_int)),
    "station_add_known": (None, (c_void_p, c_int, c_uint32)),
    "station_receive": (None, _FRAME),
    "station_sent": (None, _FRAME),
    "station_failed": (None, _FRAME),
    "station_start": (None, (c_void_p, c_int64)),
    "station_announce": (None, (c_void_p, c_int, c_int64)),
    "station_withdraw": (None, (c_void_p, c_int, c_int64)),
    "station_subscribe": (None, (c_void_p, c_int, c_int64)),
    "station_lost": (None, (c_void_p, c_int64)),
    "station_error_passive": (None, (c_void_p, c_int, c_int64)),
    "station_bus_off": (None, (c_void_p, c_int64)),
    "station_bus_on": (None, (c_void_p, c_int64)),
    "station_wake_at": (c_int64, (c_void_p,)),
    "station_wake": (None, (c_void_p, c_int64)),
    "station_publish": (c_int, (c_void_p, c_int, c_int, c_char_p, c_int, c_int64, c_int64, c_int, c_int64)),
    "station_global_time": (c_int64, (c_void_p, c_int64)),
    "station_local_time": (c_int64, (c_void_p, c_int64)),
    "station_precision": (c_int64, (c_void_p, c_int64)),
    "station_number": (c_int, (c_void_p,)),
    "station_channel_state": (c_int, (c_void_p, c_int)),
    "station_is_segmented": (c_int, (c_void_p, c_int)),
    "station_is_running": (c_int, (c_void_p,)),
    "station_is_joined": (c_int, (c_void_p,)),
    "station_waiting": (c_int, (c_void_p,)),
    "station_counts": (None, (c_void_p, c_int, POINTER(c_uint32))),
    "station_drops": (None, (c_void_p, POINTER(c_uint32))),
    "station_clock_drops": (None, (c_void_p, POINTER(c_uint32))),
    "station_segment_drops": (None, (c_void_p, POINTER(c_uint32))),
    "station_received": (c_int, (c_void_p, c_int, POINTER(c_uint32), POINTER(c_uint32))),
    "receiver_new": (c_void_p, (c_int,)),
    "receiver_free": (None, (c_void_p,)),
    "receiver_receive": (c_int, (c_void_p, c_char_p, c_int, c_int64, c_int64)),
    "receiver_payload": (c_int, (c_void_p, c_char_p)),
    "receiver_count": (c_int, (c_void_p, c_int)),
    "segment_count": (c_int, (c_int,)),
    "segment": (c_int, (c_char_p, c_int, c_int, c_int, c_char_p)),
}


def node_sources() -> list[str]:
    """The paths of the node's source files."""
    return [str(RUNTIME / name) for name in NODE_SOURCES]


def build(compiler: str, sources: Iterable[str], options: Iterable[str]) -> Path:
    """A program or library of these sources, compiled once for all processes: a digest of them is its name."""
    sources, options = tuple(sources), tuple(options)
    texts = [Path(each).read_bytes() for each in (*sources, *sorted(map(str, RUNTIME.glob("*.h"))))]
    digest = blake2b(repr((compiler, sources, options)).encode() + b"".join(texts), digest_size=12).hexdigest()
    folder = Path(tempfile.gettempdir()) / f"genus-devices-{os.getuid()}"
    folder.mkdir(mode=0o700, exist_ok=True)
    target = folder / digest
    if not target.exists():
        made = folder / f"{digest}-{os.getpid()}"
        run([compiler, "-std=c99", *options, f"-I{RUNTIME}", *sources, "-o", str(made)])
        made.replace(target)  # another process may have made it meanwhile
    return target


@cache
def node_library(*options: str) -> ctypes.CDLL:
    """The node as a shared library, compiled with these options; skips without gcc."""
    library = ctypes.CDLL(str(build(need("gcc"), [str(SHIM), *node_sources()], ["-O1", "-shared", "-fPIC", *options])))
    for name, (result, arguments) in _SIGNATURES.items():
        function = getattr(library, name)
        function.restype, function.argtypes = result, arguments
    return library
