"""CAN logs: the frames of log files, one by one and in columns.

`frames` is what readers give, `log_file` what they share. All text formats are rows of `formats`, or columns that
`cells` finds, and read by `text_reader`; binary formats have a module each, whose `records` become frames. `detect`
finds the format and what is doubtful, `log` reads it. None needs python-can, which takes long to import.
"""

from importlib.util import find_spec

from genus._extras import missing_extra

if find_spec("numpy") is None:
    raise missing_extra("CAN logs need numpy", "can")

from genus.can._logs.frames import FrameColumns, LoggedFrame
from genus.can._logs.log import CanLog, read_log

__all__ = ["CanLog", "FrameColumns", "LoggedFrame", "read_log"]
