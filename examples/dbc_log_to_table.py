"""DBC log to table: event types from a DBC file, a candump log as typed events, and a table of them."""

import tempfile
from pathlib import Path
from typing import Any

import pyarrow as pa

from genus import Event, Subscription
from genus.can import load_dbc, read_log

DBC = """VERSION ""
BU_: Engine
BO_ 256 Drive: 4 Engine
 SG_ speed : 0|12@1+ (0.1,0) [0|409] "km/h" Engine
 SG_ gear : 12|3@1+ (1,0) [0|7] "" Engine
 SG_ oil : 24|8@1- (1,-40) [0|0] "C" Engine
VAL_ 256 gear 0 "P" 1 "R" 2 "N" 3 "D" ;
"""
LOG = """(1700000000.000000) can0 100#F4310070
(1700000000.100000) can0 100#B8330074
(1700000000.150000) can0 7FF#00
(1700000000.200000) can0 100#AC360078
"""


def main() -> None:
    folder = Path(tempfile.mkdtemp())
    (folder / "car.dbc").write_text(DBC)
    (folder / "drive.log").write_text(LOG)

    car = load_dbc(folder / "car.dbc")
    drives = Subscription.parse("Drive where gear_label = 'D' and speed > 60", car.types.values())
    rows: list[dict[str, Any]] = []
    for at_us, _channel, frame, _direction in read_log(folder / "drive.log"):
        event = car.decode(frame.id, frame.data, frame.extended)  # an event, or the reason why the frame is none
        if isinstance(event, Event) and drives.matches(event):
            values = {name: getattr(event, name) for name in ("speed", "gear", "oil")}
            rows.append({"at_us": at_us, **values})

    table = pa.Table.from_pylist(rows)
    print(table.to_string(preview_cols=4))
    print("mean speed:", sum(table["speed"].to_pylist()) / table.num_rows)


if __name__ == "__main__":
    main()
