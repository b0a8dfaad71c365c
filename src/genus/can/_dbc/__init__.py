"""DBC files: event types from the messages of a DBC file, and the frames of logs as events.

`layout` describes the bits of signals, `database` reads them with cantools, `message_types` declares event types and
decodes frames, `dbc_file` puts these together. `logs` decodes the frames of logs, `columns` and `signal_columns` very
many frames at once.
"""

from genus._extras import missing_extra

try:
    import cantools  # noqa: F401
except ImportError as missing:
    raise missing_extra("DBC files need cantools", "can") from missing

from genus.can._dbc.dbc_file import Dbc, load_dbc, python_source
from genus.can._dbc.layout import MessageLayout, SignalLayout
from genus.can._dbc.logs import Decoding, decode_log

__all__ = ["Dbc", "Decoding", "MessageLayout", "SignalLayout", "decode_log", "load_dbc", "python_source"]
