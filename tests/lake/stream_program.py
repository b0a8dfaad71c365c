"""A process that streams a landing folder to its end, to be killed: `python stream_program.py FOLDER`."""

import sys
from pathlib import Path

sys.path.insert(0, str(Path(__file__).parents[2]))

from genus.lake import Lake
from genus.testing import spark_session
from tests.lake.test_inboxes import WANTED

if __name__ == "__main__":
    folder = Path(sys.argv[1])
    lake = Lake(spark_session(), folder / "lake")
    (folder / "began").touch()
    lake.stream(folder / "landing", files_per_batch=1).route(WANTED).to_inboxes(folder / "inboxes").run()
