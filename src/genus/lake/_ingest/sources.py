"""Sources of an ingest: find the files of paths, folders and patterns, and choose a format for each."""

import glob
import os
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from functools import cached_property
from typing import TYPE_CHECKING, Any

import msgspec
from pyspark.sql import SparkSession

from genus.errors import LakeError
from genus.lake._ingest.csv_files import Csv
from genus.lake._ingest.format import Format, Types, Unknown
from genus.lake._ingest.json_lines import JsonLines
from genus.lake._ingest.recordings import Recordings
from genus.lake._ingest.tabular import ParquetFiles
from genus.lake._tables.file_systems import file_system_for, walk_files
from genus.lake._tables.files import FileInfo, absolute_path, file_info, local_path
from genus.records import Mapping, read_mapping

if TYPE_CHECKING:
    from genus.can.types import Dbc
    from genus.lake._ingest.can_logs import CanLogs

ENDINGS = ("json", "jsonl", "ndjson", "csv", "tsv", "parquet")
"""File endings of the formats that take a mapping."""
RECORDING = "recording"
CAN_ENDINGS = ("log", "asc", "blf", "trc", "mf4", "mdf", "pcap", "pcapng", "crtd")
"""Endings of CAN logs; with a DBC file, a file of any ending that is no other format is one if its content is."""

_KNOWN_ENDINGS = ("genus", *ENDINGS, *CAN_ENDINGS)
_PACKED = ("", ".gz", ".zst", ".bz2", ".xz")

PathLike = str | os.PathLike[str]


def find_files(spark: SparkSession, given: PathLike | Iterable[PathLike], any_ending: bool) -> list[FileInfo]:
    """Return the files of paths, folders and patterns, each once.

    In folders, hidden files are skipped, and files without the ending of a known format unless `any_ending` is set.
    """
    paths = [given] if isinstance(given, str | os.PathLike) else list(given)
    found = (file for each in paths for file in _files_at(spark, os.fspath(each), any_ending))
    return list({file.path: file for file in found}.values())


def _files_at(spark: SparkSession, path: str, any_ending: bool) -> Iterator[FileInfo]:
    local = local_path(path)
    if local is not None and os.path.isfile(local):
        yield file_info(local)
    elif local is not None and not os.path.exists(local):
        if not (found := sorted(filter(os.path.isfile, glob.glob(local, recursive=True)))):
            raise LakeError(f"{path}: there is no such file or folder")
        yield from map(file_info, found)
    else:
        path = absolute_path(path)
        files = list(walk_files(file_system_for(spark, path), path, hidden=False))
        if local is None and not files:
            files = [file_info(path)]  # a remote file: it has no entries
        yield from (file for file in files if any_ending or ending_of(file.path) in _KNOWN_ENDINGS)


@dataclass
class FormatChooser:
    """How files are read, see `Lake.ingest`; chooses the format of each: the one that was asked for, or by its ending.

    State: the files of the mapping and the DBC, which are read once.
    """

    format: str | None = None
    mapping: Mapping | PathLike | None = None
    dbc: "PathLike | Dbc | None" = None
    unknown: Unknown = "dead"
    time_unit: str | None = None
    columns: str | None = None

    def __getstate__(self) -> dict[str, Any]:
        """What tasks need: the layouts of the messages of a DBC file, not the file."""
        found = {"_mapping": self._mapping, "_dbc": None, "_logs": self._logs}
        return {
            "format": self.format,
            "mapping": None,
            "dbc": None,
            "unknown": self.unknown,
            "columns": self.columns,
            **found,
        }

    @cached_property
    def _mapping(self) -> Mapping | None:
        given = self.mapping
        return given if given is None or isinstance(given, Mapping) else read_mapping(os.fspath(given))

    @cached_property
    def _dbc(self) -> "Dbc | None":
        if not isinstance(self.dbc, str | os.PathLike):
            return self.dbc
        from genus.can import load_dbc

        return load_dbc(self.dbc, reuse=True)

    @cached_property
    def _logs(self) -> "CanLogs | None":
        """The format of CAN logs; the log format of a file is filled in."""
        if self._dbc is None:
            return None
        from genus.lake._ingest.can_logs import CanLogs  # needs cantools, an extra

        return CanLogs.of(self._dbc, "log", unknown=self.unknown, time_unit=self.time_unit, columns=self.columns)

    def doubts(self, format: Format, path: str) -> tuple[str, ...]:
        """Return what may be wrong about how a CAN log is read; empty for other files."""
        if self._logs is None or not isinstance(format, type(self._logs)):
            return ()
        return format.doubts(path)

    @property
    def types(self) -> tuple[type, ...]:
        """The event types of the DBC file and their kind, for a catalog; empty without a DBC file."""
        return () if self._dbc is None else self._dbc.all_types

    @property
    def endings(self) -> tuple[str, ...]:
        """The endings of the files in a folder that have the format; by default those of recordings."""
        if self.format is not None:
            return ("genus",) if self.format == RECORDING else (self.format, f"{self.format}.gz")
        if self._logs is not None:
            return tuple(f"{each}{packed}" for each in (*CAN_ENDINGS, "csv") for packed in _PACKED)
        return ("genus",) if self._mapping is None else tuple(f"{each}{gz}" for each in ENDINGS for gz in ("", ".gz"))

    @property
    def pattern(self) -> str:
        """The names of such files, in capitals or small letters, as a pattern of Spark."""
        return f"*.{{{','.join(map(_any_case, self.endings))}}}"

    def __call__(self, path: str) -> Format:
        """The format of a file; LakeError if its ending is unknown, or if a CAN log comes without a DBC file."""
        ending = self.format or ending_of(path)
        if ending in (RECORDING, "genus"):
            return Recordings()
        if ending in CAN_ENDINGS or (self._logs is not None and (ending == "csv" or ending not in ENDINGS)):
            if self._logs is None:
                raise LakeError(f"{path}: a CAN log needs a DBC file that describes its frames; give one (dbc=, --dbc)")
            from genus.lake._ingest.can_logs import find_log_format  # needs cantools, an extra

            log = self.format or ("csv" if self.columns is not None else find_log_format(path))
            return msgspec.structs.replace(self._logs, log=log)
        mapping = self._mapping or Mapping()
        if ending in ("json", "jsonl", "ndjson"):
            return JsonLines(mapping)
        if ending in ("csv", "tsv"):
            return Csv(mapping, delimiter=mapping.csv.delimiter or ("\t" if ending == "tsv" else ","))
        if ending == "parquet" and path.lower().endswith(".gz"):
            raise LakeError(f"{path}: Parquet files in gzip files are not read; unpack it")
        if ending == "parquet":
            return ParquetFiles(mapping)
        known = ", ".join(_KNOWN_ENDINGS)
        raise LakeError(f"{path}: unknown ending {ending!r}; name the format, one of {known} (format=, --format)")

    def check(self, types: Types) -> None:
        """Raise LakeError if the mapping names types or attributes that the catalog lacks."""
        if self._mapping is not None:
            self._mapping.check(types)

    def check_named(self, path: str, types: Types) -> None:
        """Raise LakeError if a file has no known format, or is a table that does not name the types of its rows."""
        format = self(path)
        if self._mapping is None and isinstance(format, Csv):
            format.check_named(path, types)


def _any_case(text: str) -> str:
    """Return a pattern for a text in capitals or small letters.

    >>> _any_case("a.1")
    '[aA].1'
    """
    return "".join(f"[{each.lower()}{each.upper()}]" if each.isalpha() else each for each in text)


def ending_of(path: str) -> str:
    """Return the ending of a file's name in lower case, before any `.gz`.

    >>> ending_of("/data/Drive.candump.LOG.gz")
    'log'
    """
    name = os.path.basename(path).lower().removesuffix(".gz")
    return name.rpartition(".")[2] if "." in name else ""
