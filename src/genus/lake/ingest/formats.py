"""Which format a file from elsewhere has, by the ending of its name."""

import os

from genus.errors import LakeError
from genus.lake.ingest.csv_files import Csv
from genus.lake.ingest.fields import Mapping
from genus.lake.ingest.json_lines import JsonLines
from genus.lake.ingest.parquet_files import ParquetFiles
from genus.lake.ingest.source import Format

ENDINGS = ("json", "jsonl", "ndjson", "csv", "tsv", "parquet")


def format_for(path: str, mapping: Mapping | None = None) -> Format:
    """The format of a file by its ending; text may have `.gz` behind it.

    >>> format_for("/data/loops.csv.gz").name
    'csv'
    """
    name = os.path.basename(path).lower()
    return mapped_format(path, name.removesuffix(".gz").rpartition(".")[2], mapping)


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
