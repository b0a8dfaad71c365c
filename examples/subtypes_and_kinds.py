"""Subtypes and kinds: subscribe to what an event is, without knowing every class there will be."""

from genus import Event, Kind, UInt8, all_of, open_bus


class Powered(Kind):
    """Anything with a battery; a kind has no events of its own, and a class may have several kinds."""


class Motion(Event):
    room: str


class Door(Event, Powered):
    room: str
    is_open: bool


class SmartMotion(Motion, Powered):  # is a Motion, is Powered, and says more
    people: UInt8


def main() -> None:
    with open_bus("local:") as bus:
        bus.collection(Motion).subscribe(lambda event: print("motion in the", event.room))  # subtypes included
        bus.collection(Motion).subscribe(lambda event: print("  from an old sensor"), exact=True)
        bus.collection(Powered).subscribe(lambda event: print("  from something with a battery:", type(event).__name__))
        both = all_of(Motion, Powered)  # what is a Motion and Powered, whatever its class
        bus.collection(both).subscribe(lambda event: print("  a battery and motion"))

        bus.publish(Motion(room="hall"))
        bus.publish(SmartMotion(room="kitchen", people=2))
        bus.publish(Door(room="hall", is_open=True))


if __name__ == "__main__":
    main()
