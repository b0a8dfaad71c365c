"""A process that ingests the files of a folder, without Spark, until it is killed: `python kill_program.py FOLDER`."""

import sys
from pathlib import Path
from typing import Any
from unittest.mock import MagicMock

sys.path.insert(0, str(Path(__file__).parents[2]))

from genus.lake import Lake


def without_spark() -> Any:
    """In place of a session: small files are ingested without Spark, only the jobs are described."""
    return MagicMock()


def main(folder: Path) -> None:
    lake = Lake(without_spark(), folder / "lake")
    print("ready", flush=True)
    for file in sorted((folder / "landing").iterdir()):
        lake.ingest(file)
    lake.mirror()


if __name__ == "__main__":
    main(Path(sys.argv[1]))
