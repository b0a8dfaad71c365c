"""What `ingest` is given: files, folders and patterns become files, and each file gets its format."""

import glob
import os
from collections.abc import Iterable, Iterator
from functools import cached_property
from typing import TYPE_CHECKING, Literal

from pyspark.sql import SparkSession

from genus.errors import LakeError
from genus.lake._ingest.csv_files import Csv
from genus.lake._ingest.format import Format, Types
from genus.lake._ingest.json_lines import JsonLines
from genus.lake._ingest.mapping import Mapping, read_mapping
from genus.lake._ingest.parquet_files import ParquetFiles
from genus.lake._ingest.recordings import Recordings
from genus.lake._tables.files import everything_in, files_of, local_path, whole_path

if TYPE_CHECKING:
    from genus.can._dbc import Dbc

# The formats that take a mapping, by what files of them end in.


ENDINGS = ("json", "jsonl", "ndjson", "csv", "tsv", "parquet")


def mapped_format(path: str, ending: str, mapping: Mapping | None) -> Format:
    """The format called by an ending, for a file; LakeError if it is none of those that take a mapping."""
    mapping = mapping or Mapping()
    if ending in ("json", "jsonl", "ndjson"):
        return JsonLines(mapping)
    if ending in ("csv", "tsv"):
        return Csv(mapping, delimiter=mapping.csv.delimiter or ("\t" if ending == "tsv" else ","))
    if ending == "parquet" and not path.lower().endswith(".gz"):
        return ParquetFiles(mapping)
    raise LakeError(f"{path}: {ending!r} is none of {', '.join(ENDINGS)}, which a mapping can be given for")


RECORDING = "recording"
CAN_ENDINGS = ("log", "asc", "blf", "trc")

PathLike = str | os.PathLike[str]
Unknown = Literal["dead", "pass"]
"""What becomes of frames that a DBC file says nothing about: dead letters, or nothing."""


def find_files(spark: SparkSession, given: PathLike | Iterable[PathLike], *, any_ending: bool = False) -> list[str]:
    """The files that paths, folders and patterns stand for, each once.

    In folders, hidden files are passed over, and those that no format is known by the ending of, unless any is good.
    """
    paths = [given] if isinstance(given, str | os.PathLike) else list(given)
    found = (path for each in paths for path in _files_at(spark, os.fspath(each), any_ending))
    return list(dict.fromkeys(found))


def _files_at(spark: SparkSession, path: str, any_ending: bool) -> Iterator[str]:
    local = local_path(path)
    if local is not None and os.path.isfile(local):
        yield local
    elif local is not None and not os.path.exists(local):
        yield from _matching(path, local)
    else:
        found = _files_in(spark, whole_path(path))
        yield from found if any_ending else filter(_has_format, found)


def _matching(path: str, pattern: str) -> list[str]:
    if not (found := sorted(filter(os.path.isfile, glob.glob(pattern, recursive=True)))):
        raise LakeError(f"{path}: there is no such file or folder")
    return found


def _files_in(spark: SparkSession, path: str) -> list[str]:
    found = [each.path for each in everything_in(files_of(spark, path), path) if not _is_hidden(each.path[len(path) :])]
    if local_path(path) is None and not found:
        return [path]  # a file elsewhere: it lists nothing below itself
    return found


def _has_format(path: str) -> bool:
    return ending_of(path) in ("genus", *ENDINGS, *CAN_ENDINGS)


def _is_hidden(inner: str) -> bool:
    return any(part.startswith((".", "_")) for part in inner.split("/") if part)


class Chooser:
    """Gives each file its format: by its ending, or the one that was asked for."""

    def __init__(
        self, format: str | None, mapping: Mapping | PathLike | None, dbc: PathLike | None, unknown: Unknown = "dead"
    ) -> None:
        self._format = format
        self._mapping = mapping if mapping is None or isinstance(mapping, Mapping) else read_mapping(os.fspath(mapping))
        self._dbc_path, self._unknown = dbc, unknown

    @cached_property
    def _dbc(self) -> "Dbc | None":
        if self._dbc_path is None:
            return None
        from genus.can._dbc import load_dbc  # cantools is an extra

        return load_dbc(self._dbc_path)

    @property
    def types(self) -> tuple[type, ...]:
        """The event types of the DBC file and their kind, for a catalog; none without a DBC file."""
        return () if self._dbc is None else self._dbc.all_types

    def __call__(self, path: str) -> Format:
        """The format of a file; LakeError says what is missing."""
        ending = self._format or ending_of(path)
        if ending in (RECORDING, "genus"):
            return Recordings()
        if ending in CAN_ENDINGS or (self._dbc_path is not None and ending == "csv"):
            return self._can_logs(path, ending)
        if ending in ENDINGS:
            return mapped_format(path, ending, self._mapping)
        known = ", ".join(("genus", *ENDINGS, *CAN_ENDINGS))
        raise LakeError(f"{path}: no format is known by the ending {ending!r}; give one of {known} (format=, --format)")

    def check(self, types: Types) -> None:
        """Refuse a mapping that names what the catalog does not have."""
        if self._mapping is not None:
            self._mapping.check(types)

    def _can_logs(self, path: str, ending: str) -> Format:
        if self._dbc is None:
            raise LakeError(f"{path}: a CAN log needs a DBC file that says what frames mean; give one (dbc=, --dbc)")
        from genus.lake._ingest.can_logs import CanLogs  # cantools is an extra

        return CanLogs.of(self._dbc, ending, unknown=self._unknown)


def ending_of(path: str) -> str:
    """The ending of a file's name in lower case, before any `.gz`.

    >>> ending_of("/data/Drive.candump.LOG.gz")
    'log'
    """
    name = os.path.basename(path).lower().removesuffix(".gz")
    return name.rpartition(".")[2] if "." in name else ""
