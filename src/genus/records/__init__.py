"""Records of other systems: mapping files, and events read from and written to records, messages and topics."""

from typing import TYPE_CHECKING

from genus._lazy import lazy

if TYPE_CHECKING:
    from genus.records._mapping import Mapping
    from genus.records._mapping_file import read_mapping
    from genus.records._reader import RecordReader
    from genus.records._topics import ForeignTopics, Message
    from genus.records._writer import RecordWriter

__all__ = [
    "ForeignTopics",
    "Mapping",
    "Message",
    "RecordReader",
    "RecordWriter",
    "read_mapping",
]

if not TYPE_CHECKING:
    __getattr__ = lazy(__name__)
