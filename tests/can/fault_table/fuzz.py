"""Row 22: random frames received by nodes and a broker."""

from collections.abc import Callable, Iterator
from random import Random

from genus.can._machine import Call, Load
from genus.can._node.node import Node
from genus.can._protocol.broker import Broker
from genus.can._protocol.broker_tables import MemoryStore
from genus.can._wire.frame import ETAG_MASK, RESERVED_ETAGS, Frame
from genus.filters import Subscription
from tests.can.fault_table.row import Observation, Setting, row

SPACING_NS = 100_000


@row(
    22,
    "random frames",
    injected="1,000,000 frames with random identifiers and data into nodes with and without a number, and a broker",
    expected="no crash; frames of events change neither numbers nor bindings nor tables",
)
def fuzz(setting: Setting) -> Observation:
    """Half of the frames have event tags of the middleware, a quarter have those of known events."""
    frames = int(setting.size(20_000, 1_000_000))
    machines = (_node(setting, planned=True), _node(setting, planned=False), _broker(setting))
    changed = crashes = 0
    for number, frame in enumerate(random_frames(setting, frames)):
        now = (number + 1) * SPACING_NS
        before = [_state(machine) for machine in machines]
        crashes += sum(_crashes(machine.receive, frame, now) for machine in machines)
        if frame.id & ETAG_MASK >= RESERVED_ETAGS and [_state(machine) for machine in machines] != before:
            changed += 1
        crashes += sum(_crashes(_handle_outputs, machine, now) for machine in machines)
    dropped = sum(machines[0].counts().dropped.values())
    text = (
        f"{frames:,} frames, {crashes} crashes, {dropped:,} dropped with a reason; {changed} events changed any state"
    )
    return Observation(text, {"no crash": crashes == 0, "nothing changed": changed == 0})


def _crashes(call: Callable[..., None], *arguments: object) -> bool:
    try:
        call(*arguments)
    except Exception:
        return True
    return False


def _handle_outputs(machine: Node | Broker, now: int) -> None:
    """Wake a machine if a timer is due, confirm at once what it sends, and call its handlers."""
    if machine.wake_at is not None and machine.wake_at <= now:
        machine.wake(now)
    for output in machine.take():
        if isinstance(output, Load) and output.frame is not None:
            machine.sent(output.frame, now)
        elif isinstance(output, Call):
            output.handler(*output.arguments)


def _node(setting: Setting, *, planned: bool) -> Node:
    typed, slots = setting.prepared.typed, setting.prepared.plan.calendar.slots
    name = typed.system.channels[0].node
    number = typed.system.nodes[name] if planned else None
    node = Node(1, name=name, timing=typed.system.bus.timing, slots=slots, catalog=typed.catalog, number=number)
    node.start(0)
    for channel in typed.system.channels:
        if channel.node == name:
            node.announce(typed.stand_ins[channel.event].cls, channel.qos, 0)
    for stand_in in typed.stand_ins.values():
        node.subscribe(Subscription(stand_in.cls), 0)
    return node


def _broker(setting: Setting) -> Broker:
    return Broker(1, setting.prepared.typed.catalog, MemoryStore(), seed=setting.seed)


def random_frames(setting: Setting, count: int) -> Iterator[Frame]:
    """Frames of any priority, node and length, most of them with event tags that are in use."""
    random = Random(f"fuzz {setting.seed}")
    known = [channel.etag for channel in setting.prepared.typed.system.channels]
    for _ in range(count):
        drawn = random.random()
        etag = random.randrange(16) if drawn < 0.5 else random.choice(known) if drawn < 0.75 else random.getrandbits(14)
        yield Frame(random.getrandbits(15) << 14 | etag, random.randbytes(random.randrange(9)))


def _state(machine: Node | Broker) -> tuple[object, ...]:
    if isinstance(machine, Broker):
        return len(machine.numbers), len(machine.channels), machine.epoch, machine.active
    return machine.number, *((channel.state, channel.etag) for channel in machine.tx.channels.values())
