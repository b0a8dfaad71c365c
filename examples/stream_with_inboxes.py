"""A stream with inboxes: recordings land in a folder, Spark ingests them and delivers matches to each subscriber.

It is run twice: what was delivered before is not delivered again.
"""

import tempfile
from datetime import UTC, datetime, timedelta
from pathlib import Path

from genus import Event, open_bus
from genus.bus import record_to_folder
from genus.lake import Inboxes, Lake, local_session


class Room(Event):
    """A room's climate."""

    celsius: float
    window_open: bool


SUBSCRIPTIONS = {"heating": "Room where celsius < 19", "night watch": "Room has place where window_open"}


def publish(landing: Path, hours: range) -> None:
    """What a building does all day, in files that are complete when they appear in the folder."""
    morning = datetime(2026, 11, 16, 6, tzinfo=UTC)
    with open_bus() as bus, record_to_folder(bus, landing, max_events=5):
        for hour in hours:
            time = morning + timedelta(hours=hour)
            bus.publish(Room(time=time, place="lab", celsius=17.5 + hour, window_open=hour % 4 == 0))


def main() -> None:
    folder = Path(tempfile.mkdtemp())
    spark = local_session()
    lake = Lake.create(spark, folder / "lake", Room)
    for hours in (range(6), range(6, 12)):
        publish(folder / "landing", hours)
        stream = lake.stream(folder / "landing").route(SUBSCRIPTIONS).to_inboxes(folder / "inboxes")
        stream.run()  # until all files are ingested; start() goes on until it is stopped
        inboxes = Inboxes(spark, folder / "inboxes")
        for subscriber in SUBSCRIPTIONS:
            print(f"{subscriber}: {inboxes.read(subscriber).count()} events after hour {hours.stop}")
    cold = inboxes.read("heating").orderBy("time").first()
    assert cold is not None
    print("first for the heating:", cold.place, cold.celsius, "C")


if __name__ == "__main__":
    main()
