"""Event types from DBC files, and CAN logs as recordings of their events.

`layout` holds the bits of signals, `database` reads them through cantools, `types` declares the event types, `decode`
makes events of frames, `logs` reads the frames of log files through python-can, `recorded` writes what comes of them.
"""

try:
    import cantools  # noqa: F401

    import can  # noqa: F401
except ImportError as missing:
    raise ImportError("genus.can.dbc needs cantools and python-can: pip install 'genus[can]'") from missing

from genus.can.dbc.decode import Dbc, load_dbc
from genus.can.dbc.layout import MessageLayout, SignalLayout
from genus.can.dbc.logs import CanLog, Logged, read_log
from genus.can.dbc.recorded import Decoding, decode_log
from genus.can.dbc.source import python_source

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
