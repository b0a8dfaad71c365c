"""DBC files and CAN logs: event types from the messages of a DBC file, and the frames of logs as events.

`layout` describes the bits of signals, `database` reads them with cantools, `message_types` declares event types and
decodes frames, `dbc_file` puts these together. `log_file`, `candump`, `text_logs` and `blf` read log files, `logs`
decodes them. `columns` and `signal_columns` decode very many frames at once.
"""

from genus._extras import missing_extra

try:
    import cantools  # noqa: F401

    import can  # noqa: F401
except ImportError as missing:
    raise missing_extra("CAN logs and DBC files need cantools and python-can", "can") from missing

from genus.can._dbc.dbc_file import Dbc, load_dbc, python_source
from genus.can._dbc.layout import MessageLayout, SignalLayout
from genus.can._dbc.log_file import LoggedFrame
from genus.can._dbc.logs import CanLog, Decoding, decode_log, read_log

__all__ = [
    "CanLog",
    "Dbc",
    "Decoding",
    "LoggedFrame",
    "MessageLayout",
    "SignalLayout",
    "decode_log",
    "load_dbc",
    "python_source",
    "read_log",
]
