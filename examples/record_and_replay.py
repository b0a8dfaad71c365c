"""Record and replay: what was published in a file, and the same subscriptions on it later."""

import tempfile
from pathlib import Path

from genus import Event, Maybe, open_bus, read_recording, record, replay, this


class Loop(Event):
    lane: int
    speed: Maybe[float] = None


def main() -> None:
    file = Path(tempfile.mkdtemp()) / "loops.genus"
    with open_bus("local:") as bus, record(bus, file, "Loop has speed") as recorder:
        for lane, speed in ((1, 20.0), (2, None), (2, 41.5), (1, 38.0)):
            bus.publish(Loop(lane=lane, speed=speed))
    print(recorder.written, "of 4 events recorded")

    recording = read_recording(file, [Loop])
    for recorded in recording:
        print(recorded.event)

    with open_bus("local:") as bus:
        fast = bus.collection(Loop).inbox(where=this.speed > 30)
        count = replay(recording, bus.publish)  # at once; speed=1.0 keeps the original intervals
        print(count, "events replayed, of which fast:", [fast.get(timeout=0).speed for _ in range(2)])

    content = bytearray(file.read_bytes())  # recordings survive damage: a wrong bit is put right, and told
    content[100] ^= 1
    file.write_bytes(content)
    print(len(list(recording)), "events left;", recording.damage[0].split(": ", 1)[1])


if __name__ == "__main__":
    main()
