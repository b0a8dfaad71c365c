"""CAN in the simulator: a controller and an actuator with command, acknowledgement and timeout, under a fault.

Both programs are what runs on a real bus: only the address says `sim:` instead of `can:`.
"""

from genus import Event, Soft, UInt8, open_bus
from genus.can import World


class Move(Event):  # a command to a valve
    number: UInt8
    percent: UInt8


class Moved(Event):  # the acknowledgement of the command with this number
    number: UInt8
    percent: UInt8


def valve(address: str) -> None:
    """The actuator: moves, which takes 30 ms, and acknowledges."""
    with open_bus(address) as bus, bus.channel(Moved, Soft(deadline="5ms")) as acknowledgements:
        for command in bus.collection(Move).inbox():
            bus.sleep("30ms")
            acknowledgements.publish(Moved(number=command.number, percent=command.percent))


def move(address: str, percents: list[int]) -> None:
    """The controller: sends commands, waits for the acknowledgement, and tries again twice."""
    qos = Soft(deadline="5ms", expires="50ms")
    with open_bus(address) as bus, bus.channel(Move, qos, on_problem=print) as commands:
        moved = bus.collection(Moved).inbox()
        for number, percent in enumerate(percents):
            for attempt in (1, 2, 3):
                commands.publish(Move(number=number, percent=percent))
                try:
                    while (answer := moved.get(timeout="100ms")).number != number:
                        print("late:", answer)
                    print(f"{answer} after attempt {attempt}")
                    break
                except TimeoutError:
                    print(f"no acknowledgement of {percent} % within 100 ms")


def main() -> None:
    faults = ["crash node=valve at=100ms restart=250ms", "errors p=0.05"]
    with World("plant", catalog=[Move, Moved], seed=1, faults=faults) as world:
        world.start(valve, "sim:plant?name=valve")
        world.run("50ms")
        program = world.start(move, "sim:plant?name=controller", [20, 50, 80, 100])
        world.run("5s", until=lambda: program.is_done)
        for result in world.outcome().channels:
            print(f"{result.channel}: {result.published} published, {result.sent} sent, {result.lost} lost")


if __name__ == "__main__":
    main()
