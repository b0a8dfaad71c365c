"""A process that ingests the files of a folder until it is killed: `python kill_program.py FOLDER`."""

import sys
from pathlib import Path

sys.path.insert(0, str(Path(__file__).parents[2]))

from genus.lake import Lake
from genus.testing import spark_session


def main(folder: Path) -> None:
    lake = Lake(spark_session(), folder / "lake")
    print("ready", flush=True)
    for file in sorted((folder / "landing").iterdir()):
        lake.ingest(file)
    lake.mirror()


if __name__ == "__main__":
    main(Path(sys.argv[1]))
