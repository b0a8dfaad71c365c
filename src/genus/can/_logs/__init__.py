"""CAN logs: the frames of log files, one by one and in columns.

`frames` is what readers give, `log_file` what they share. `candump`, `text_logs` and `blf` read one format each or
several, `log` chooses among them.
"""

from genus._extras import missing_extra

try:
    import numpy  # noqa: F401

    import can  # noqa: F401
except ImportError as missing:
    raise missing_extra("CAN logs need python-can and numpy", "can") from missing

from genus.can._logs.frames import FrameColumns, LoggedFrame
from genus.can._logs.log import CanLog, read_log

__all__ = ["CanLog", "FrameColumns", "LoggedFrame", "read_log"]
