"""Event types from DBC files, and CAN logs as recordings of their events.

`layout` holds the bits of signals, `database` reads them through cantools, `types` declares the event types, `decode`
makes events of frames, `logs` reads the frames of log files through python-can, `recorded` writes what comes of them.
"""

from genus._extras import missing_extra

try:
    import cantools  # noqa: F401

    import can  # noqa: F401
except ImportError as missing:
    raise missing_extra("CAN logs and DBC files need cantools and python-can", "can") from missing

from genus.can._dbc.codegen import python_source
from genus.can._dbc.decode import Dbc, load_dbc
from genus.can._dbc.layout import MessageLayout, SignalLayout
from genus.can._dbc.logs import CanLog, Decoding, Logged, decode_log, read_log

__all__ = [
    "CanLog",
    "Dbc",
    "Decoding",
    "Logged",
    "MessageLayout",
    "SignalLayout",
    "decode_log",
    "load_dbc",
    "python_source",
    "read_log",
]
