"""`make demo`: Genus at work on small examples, in a few seconds and with nothing to start."""

import random
import sys
import tempfile
import time
from collections import Counter
from datetime import UTC, datetime, timedelta
from functools import partial
from pathlib import Path

from rich.console import Console
from rich.progress import track
from rich.table import Table

from genus import Catalog, Event, Subscription, all_of, open_bus, this
from genus.bus.recording import read_recording, record, replay
from genus.can.plan import load_system
from genus.can.scenario import Prepared, Scenario, simulate
from genus.can.sim.fault_text import parse_fault
from genus.filters import bindings
from genus.lake import Inboxes, Lake
from genus.lake.session import local_session
from genus.targets import arrow, python
from genus.targets.index import SubscriptionIndex

sys.path.insert(0, str(Path(__file__).parent))
from traffic import Category, ConfidentLoop, Gate, Lamp, Loop, Powered, Roadside

console = Console()
START = datetime(2026, 1, 1, 8, tzinfo=UTC)


def an_hour_of_traffic(count: int) -> list[Event]:
    """Vehicles over two generations of loops, with lamps and gates between them."""
    chance = random.Random(8)
    events: list[Event] = []
    for number in range(count):
        time_ = START + timedelta(seconds=3600 * number / count)
        place, lane = f"A8/km{chance.randrange(30, 36)}", chance.randrange(1, 4)
        category = chance.choices(list(Category), [2, 7, 1])[0]
        speed = chance.gauss(24 if category is Category.TRUCK else 36, 5)
        match chance.random():
            case roll if roll < 0.45:
                events.append(Loop(time=time_, lane=lane))
            case roll if roll < 0.8:
                events.append(Loop(time=time_, place=place, lane=lane, category=category, speed=speed))
            case roll if roll < 0.95:
                sure = chance.random()
                events.append(ConfidentLoop(time=time_, place=place, lane=lane, category=category, confidence=sure))
            case roll if roll < 0.98:
                events.append(Lamp(time=time_, place=place, on=chance.random() < 0.5))
            case _:
                events.append(Gate(time=time_, open=chance.random() < 0.5))
    return events


SUBSCRIPTIONS = {
    "everything at the roadside": Subscription(Roadside),
    "velocity monitor": Subscription(Loop, has=("lane", "time")),
    "statistics collector": Subscription(Loop, has=("time", "place", "category")),
    "old loops only": Subscription(Loop, exact=True),
    "speeding trucks": Subscription(Loop, where=(this.category == Category.TRUCK) & (this.kmh > 100)),
    "unsure new loops": Subscription(all_of(Loop, Powered), where=this.confidence < 0.5),
}


def show_types() -> Catalog:
    """The catalog gives every type a code, every attribute a bit and every class an event tag."""
    catalog = Catalog()
    catalog.register(Loop, ConfidentLoop, Lamp, Gate, Roadside, Powered)
    table = Table(title="The catalog: agreed once, never changed")
    for heading in ("type", "code", "is a", "etag", "vector (bit: attribute)"):
        table.add_column(heading)
    for cls in (Event, Roadside, Powered, Loop, ConfidentLoop, Lamp, Gate):
        above = [
            other.__name__ for other in (Roadside, Powered, Loop) if other is not cls and catalog.subsumes(other, cls)
        ]
        etag = f"{catalog.etag(cls):#06x}" if issubclass(cls, Event) else "-"
        own = [f"{bit}: {a.name}" for bit, a in enumerate(catalog.vector(cls)) if bit > 4]
        table.add_row(cls.__name__, str(catalog.code(cls)), ", ".join(above), etag, ", ".join(own))
    console.print(table)
    return catalog


def count(got: Counter[str], name: str, _: Event) -> None:
    """A subscriber that counts."""
    got[name] += 1


def run_the_bus(events: list[Event], file: Path) -> Counter[str]:
    """Publish an hour of events to six subscribers and a recorder."""
    got: Counter[str] = Counter()
    with open_bus("local:") as bus, record(bus, file):
        for name, subscription in SUBSCRIPTIONS.items():
            bus.subscribe(subscription, partial(count, got, name))
        publish = bus.collection(Event).publish
        began = time.perf_counter()
        for event in track(events, "publishing an hour of traffic", console=console, transient=True):
            publish(event)
        seconds = time.perf_counter() - began
    console.print(f"Published {len(events):,} events to 6 subscribers and a recording in {seconds:.1f} s.")
    return got


def ask_everywhere(events: list[Event], file: Path, got: Counter[str]) -> bool:
    """The same subscriptions in generated code, over Arrow batches, in the index and over the recording."""
    index = SubscriptionIndex()
    handles = {index.add(subscription): name for name, subscription in SUBSCRIPTIONS.items()}
    indexed = Counter(handles[int(handle)] for event in events for handle in index.match(event))
    families: dict[str, list[Event]] = {}
    for event in events:
        families.setdefault("Loop" if isinstance(event, Loop) else type(event).__name__, []).append(event)
    batches = [arrow.to_batch(family) for family in families.values()]
    table = Table(title="One subscription, the same answer everywhere")
    for heading in ("subscriber", "subscription", "bus", "python", "arrow", "index", "replay"):
        table.add_column(heading, justify="left" if heading.startswith("subscri") else "right")
    agree = True
    for name, subscription in track(SUBSCRIPTIONS.items(), "asking everywhere", console=console, transient=True):
        generated, column = python.compile(subscription), arrow.compile(subscription)
        answers = [
            got[name],
            sum(map(generated, events)),
            sum(column.filter(batch).num_rows for batch in batches),
            indexed[name],
            replay(read_recording(file), lambda _: None, subscription),
        ]
        agree &= len(set(answers)) == 1
        table.add_row(name, str(subscription), *(f"{answer:,}" for answer in answers))
    console.print(table)
    return agree


def fill_a_lake(file: Path, folder: Path, got: Counter[str]) -> bool:
    """Read the recording into a lake on Spark, and route its events to the same subscribers."""
    console.print("\nStarting Spark on this machine, which takes some seconds ...", style="dim")
    spark = local_session()
    with console.status("reading the recording into a lake"):
        lake = Lake.create(spark, folder / "lake", Loop, ConfidentLoop, Lamp, Gate)
        done = lake.ingest(file)
    with console.status("routing its events to inboxes"):
        route = lake.route(SUBSCRIPTIONS)
        delivered = route.to_inboxes(folder / "inboxes")
        rows = Inboxes(spark, folder / "inboxes").subscribers().collect()
    inboxes = {row["subscriber"]: row["events"] for row in rows}
    console.print(
        f"On Spark: {done.events:,} events of the recording in {len(lake.stats())} tables, {done.dead} dead letters, "
        f"{delivered.rows:,} matches in {len(inboxes)} inboxes, as many in each as on the bus: {inboxes == dict(got)}."
    )
    console.print("How Spark finds the subscribers of an event:", style="bold")
    console.print(route.explain(), highlight=False)
    spark.stop()
    return inboxes == dict(got)


def drive_a_can_bus() -> bool:
    """Plan a crossing's CAN bus, simulate a second of it under faults, and compare with what was promised."""
    crossing = Prepared.of(load_system(Path(__file__).with_name("crossing.toml")))
    faults = (parse_fault("exactly count=1"), parse_fault("drift ppm=100"))
    with console.status("simulating a second of a crossing's CAN bus, bit by bit"):
        outcome = simulate(Scenario(prepared=crossing, seconds=1, seed=1, faults=faults, confinement=False))
    table = Table(title="\nA crossing's CAN bus for a second: every hard frame fails once, clocks drift")
    for heading in ("class", "channels", "events", "missed", "slowest, of what the plan allows"):
        table.add_column(heading, justify="left" if heading == "class" else "right")
    for qos_class in ("hard", "soft", "none"):
        channels = outcome.of_class(qos_class)
        slowest = max(each.worst_ns / each.bound_ns for each in channels if each.bound_ns)
        missed = sum(each.not_sent + each.missed + sum(each.alarms.values()) for each in channels)
        events = sum(each.published for each in channels)
        table.add_row(qos_class, str(len(channels)), f"{events:,}", str(missed), f"{slowest:.0%}")
    console.print(table)
    console.print(f"The plan admits it, the bus is used to {outcome.load:.0%}, broken promises: {len(outcome.broken)}.")
    return not outcome.broken


def main() -> None:
    """Show the types, run the bus, ask everywhere, on Spark too, and drive a CAN bus."""
    console.rule("[bold]Genus: subscribe to what events are, have and say")
    show_types()
    events = an_hour_of_traffic(50_000)
    with tempfile.TemporaryDirectory() as folder:
        file = Path(folder) / "traffic.genus"
        got = run_the_bus(events, file)
        agree = ask_everywhere(events, file, got)
        agree &= fill_a_lake(file, Path(folder), got)
    console.print("What the speeding-trucks subscription became for class Loop:", style="bold")
    console.print(python.compile(SUBSCRIPTIONS["speeding trucks"]).explain(), highlight=False, soft_wrap=True)
    table = bindings(list(SUBSCRIPTIONS.values())[1:])
    console.print(
        f"\nA binding table for the loops' five subscribers needs {table.per_class} entries without super-types, "
        f"{table.per_type} with them, {len(table.merged)} merged."
    )
    kept = drive_a_can_bus()
    console.print("Next: README.md, docs/, or [bold].venv/bin/genus --help[/bold].")
    if not agree:
        sys.exit("the targets disagree: this is a bug")
    if not kept:
        sys.exit("a promise of the plan was broken: this is a bug")


if __name__ == "__main__":
    main()
