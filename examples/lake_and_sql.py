"""Lake and SQL: a recording becomes tables, queried by a subscription and by Spark SQL."""

import tempfile
from datetime import UTC, datetime, timedelta
from pathlib import Path

from genus import Event, Maybe, open_bus, record, this
from genus.lake import Lake, local_session


class Meter(Event):
    """A reading of a building's meter."""

    watts: float


class SolarMeter(Meter):
    """A meter of a roof."""

    panels: Maybe[int] = None


def record_a_day(file: Path) -> None:
    midnight = datetime(2026, 6, 21, tzinfo=UTC)
    with open_bus() as bus, record(bus, file):
        for hour in range(24):
            time = midnight + timedelta(hours=hour)
            bus.publish(Meter(time=time, place="hall", watts=400.0 + 10 * hour))
            bus.publish(SolarMeter(time=time, place="roof", watts=max(0.0, 900 - 150 * abs(hour - 12)), panels=8))


def main() -> None:
    folder = Path(tempfile.mkdtemp())
    record_a_day(folder / "day.genus")

    spark = local_session()  # or your own session
    lake = Lake.create(spark, folder / "lake", Meter, SolarMeter)
    print("ingested:", lake.ingest(folder / "day.genus").events, "events")

    strong = lake.read(SolarMeter, has="panels", where=this.watts > 500)  # a subscription, as on the bus
    print("strong sun:", strong.count(), "hours")

    lake.views()  # a view per type; SolarMeter events are Meter events too
    query = "SELECT place, round(avg(watts)) AS watts FROM Meter GROUP BY place ORDER BY place"
    for row in spark.sql(query).collect():
        print(f"{row.place}: {row.watts:.0f} W on average")


if __name__ == "__main__":
    main()
