"""What other rooms of Genus use of this one, beside its public names. Not for programs: it changes without notice."""

from typing import TYPE_CHECKING

from genus._lazy import lazy

if TYPE_CHECKING:
    from genus.can._dbc.columns import LONG_POSITION, MessageColumns
    from genus.can._dbc.j1939 import INCOMPLETE
    from genus.can._dbc.message_types import UNKNOWN_ID
    from genus.can._live.received import (
        ACTIVE,
        BUS_ERROR,
        BUS_OFF,
        CONTROLLER,
        NO_ACKNOWLEDGEMENT,
        PROTOCOL,
        PROTOCOL_ON_TRANSMISSION,
        RESTARTED,
        TX_PASSIVE,
        TX_WARNING,
    )
    from genus.can._logs.cells import parse_columns
    from genus.can._logs.detect import ENDINGS, FORMATS, HEAD_BYTES, TEXT_FORMATS, Head, Opened, detect, open_text
    from genus.can._logs.frames import EXTENDED
    from genus.can._logs.log import BINARY_READERS, log_ending
    from genus.can._logs.log_file import MAX_LINE, LogFile, SkippedRecords, head_of, looks_like_utf_16, packing_of
    from genus.can._logs.text_reader import TextReader
    from genus.can._logs.times import Unit, unit_of
    from genus.can._node.channels import TxChannel
    from genus.can._node.membership import PROTOCOL_FILTER, class_of
    from genus.can._plan.system import MAX_EVENT
    from genus.can._plan.system_file import FIRST_ETAG
    from genus.can._protocol.messages import signed_subject
    from genus.can._sim.bus import SimBus
    from genus.can._sim.controller import Controller
    from genus.can._sim.errors import Corrupt, Transmission
    from genus.can._sim.simulation import FrameSource, poisson
    from genus.can._sim.trace import TraceHeader
    from genus.can._wire.frame import CLASSIC_BYTES, FD_BYTES, padded_size, subject_uid
    from genus.can._wire.payload import PayloadField, fields_of
    from genus.can._wire.values import is_implied

if not TYPE_CHECKING:
    __getattr__ = lazy(__name__)
