"""Requests, replies, last values: a valve carries out commands or refuses them; who comes late knows its state."""

from genus import Event, Maybe, UInt8, UInt32, open_bus
from genus.errors import RequestRefused


class Move(Event):  # a request: its number is filled in
    percent: UInt8
    request: Maybe[UInt32] = None


class Moved(Event):  # the reply to it
    percent: UInt8
    request: UInt32 = 0


class ValveState(Event):
    percent: UInt8


with (
    open_bus("local:", source="valve-7") as bus,  # or ipc:, sim:, can: with valve and controller apart
    bus.channel(ValveState, keep=True) as states,  # the newest of each source is kept
):
    moves = bus.collection(Move)

    @moves.serve
    def move(event: Move) -> Moved:
        if event.percent > 80:
            raise RequestRefused("the valve is locked")
        states.publish(ValveState(percent=event.percent))
        return Moved(percent=event.percent)

    print(f"moved to {moves.request(Move(percent=30), Moved, timeout='2s').percent} %")
    try:
        moves.request(Move(percent=90), Moved, timeout="2s")
    except RequestRefused as problem:
        print(f"refused: {problem.reason}")

    bus.subscribe(ValveState, lambda state: print(f"the display knows: {state.percent} %"))
