"""The formats that take a mapping, by what files of them end in."""

from genus.errors import LakeError
from genus.lake.ingest.csv_files import Csv
from genus.lake.ingest.fields import Mapping
from genus.lake.ingest.json_lines import JsonLines
from genus.lake.ingest.parquet_files import ParquetFiles
from genus.lake.ingest.source import Format

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
