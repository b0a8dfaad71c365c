"""A DBC file on a live bus: frames of another maker's device arrive as events, and events become its frames.

The device is python-can alone, and knows nothing of Genus. On a real bus only the address changes, for example to
`can:socketcan?channel=can0&database=Car.dbc`.
"""

import tempfile
from pathlib import Path
from typing import Any

import can
from genus import open_bus, this
from genus.errors import EventError

DATABASE = """VERSION ""
BU_: Engine Dashboard
BO_ 256 Drive: 4 Engine
 SG_ speed : 0|16@1+ (0.01,0) [0|400] "km/h" Dashboard
 SG_ gear : 16|4@1+ (1,0) [0|15] "" Dashboard
BO_ 512 Lamp: 1 Dashboard
 SG_ brightness : 0|8@1+ (0.5,0) [0|100] "%" Engine
VAL_ 256 gear 0 "P" 1 "R" 2 "N" 3 "D" ;
"""

with tempfile.TemporaryDirectory() as folder, can.Bus(interface="virtual", channel="car") as device:
    path = Path(folder) / "Car.dbc"
    path.write_text(DATABASE)
    with open_bus(f"can:virtual?channel=car&database={path}") as bus:  # it sends nothing by itself
        drive, lamp = bus.types["Drive"], bus.types["Lamp"]
        fast = bus.collection(drive).inbox(where=this.speed > 50)

        for speed, gear in ((30, 3), (62, 3)):  # what the device sends
            data = (100 * speed).to_bytes(2, "little") + bytes([gear, 0])
            device.send(can.Message(arbitration_id=0x100, data=data, is_extended_id=False))
        event = fast.get(timeout=5)
        print(f"{event.source} drives {event.speed} km/h in {event.gear_label.value}")

        bus.publish(lamp(brightness=37.5))  # what the device gets
        frame: Any = device.recv(timeout=5)
        print(f"frame {frame.arbitration_id:#x} with {frame.data.hex()}")

        try:
            bus.publish(lamp(brightness=120.0))
        except EventError as problem:
            print(problem)
        print(bus.traffic().link["received: Drive"], "frames of Drive received")
