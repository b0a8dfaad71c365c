"""A stream on a cluster as a program: `python -m tests.lake.cluster_stream '{"master": "...", "folder": "..."}'`."""

import sys
from datetime import timedelta
from pathlib import Path

import msgspec

from genus.lake import Lake, Walk, Windows
from tests.lake.bursts import GIVES, bursts
from tests.lake.pipeline import Given, cluster_session
from tests.lake.roads import Counter
from tests.lake.test_inboxes import WANTED

LATE = timedelta(seconds=1)
MINUTES = Windows(every=timedelta(minutes=1), by=("lane",), values={"speed": ("count", "mean")}, lateness=LATE)
BURSTS = Walk(by=("lane",), function=bursts, gives=GIVES, lateness=LATE)


def main(given: Given) -> None:
    """Ingest what has landed, file by file, with inboxes, windows and walks."""
    folder = Path(given.folder)
    session = cluster_session(given)
    stream = Lake(session, folder / "lake").stream(folder / "landing", files_per_batch=1)
    stream = stream.route(WANTED).to_inboxes(folder / "inboxes").derive(folder / "minutes", MINUTES, Counter)
    done = stream.derive(folder / "bursts", BURSTS, Counter).run()
    (folder / "result.json").write_bytes(msgspec.json.encode(done))
    session.stop()


if __name__ == "__main__":
    main(msgspec.json.decode(sys.argv[1], type=Given))
