"""What growing costs: types in a catalog, codes one by one, subscriptions, and the code of a channel.

The types are the 1,720 vehicle signals of VSS as event classes of one family, an attribute on every sixth.
"""

import random
import tempfile
import time
from collections.abc import Callable
from functools import partial
from pathlib import Path
from typing import Any

from bench.codes import DATA
from bench.hierarchies import Hierarchy, any_ready, chain, class_library, flat
from bench.timing import human, least_ns, markdown
from genus import Event, Maybe, Subscription, open_bus, this
from genus.catalog import Catalog
from genus.codes import LinePrimes, OriginalPrimes, Scheme, code_size, read_hierarchy
from genus.model._event import EventMeta

VSS = DATA / "vss" / "vss_flat.csv"


class Reading(Event):
    value: int
    place: Maybe[str] = None


def vehicle_types() -> list[type[Event]]:
    """The signals as classes, parents first."""
    made: dict[str, Any] = {}
    for number, (name, parents) in enumerate(read_hierarchy(str(VSS)).items()):
        fields = {f"x{number}": float | None} if number % 6 == 0 else {}
        base = made[parents[0]] if parents else Event
        made[name] = EventMeta(f"S{number}", (base,), {"__annotations__": fields}, name=name)
    return list(made.values())


def seconds(run: Callable[[], object], times: int = 3) -> float:
    """The least of a few runs."""
    taken = []
    for _ in range(times):
        started = time.process_time()
        run()
        taken.append(time.process_time() - started)
    return min(taken)


def registered(*groups: list[type[Event]]) -> Catalog:
    catalog = Catalog()
    for group in groups:
        catalog.register(*group)
    return catalog


def sizes(catalog: Catalog, types: list[type[Event]]) -> str:
    codes = [code_size(catalog.code(cls)) for cls in types]
    filters = [len(catalog.filters(cls)) for cls in types]
    mean_code, mean_filters = sum(codes) / len(codes), sum(filters) / len(filters)
    return f"codes {mean_code:.2f} / {max(codes)} bytes, filters {mean_filters:.2f} / {max(filters)} (mean / max)"


def catalog_table() -> str:
    """A line per operation; one line saying so where the data is not there."""
    if not VSS.exists():
        return "(the vehicle signals were not there when this was made)"
    types = vehicle_types()
    one_by_one = [[cls] for cls in random.Random(1).sample(types, len(types))]
    whole, grown = registered(types), registered(*one_by_one)
    file = Path(tempfile.mkdtemp()) / "catalog.json"
    whole.save(file)
    event = types[0]()
    tagging = least_ns({"tag": ("catalog.tag(event)", {"catalog": whole, "event": event})})["tag"]
    rows = [
        ["register all in one call", f"{seconds(partial(registered, types)):.2f} s", sizes(whole, types)],
        ["one by one in random order", f"{seconds(partial(registered, *one_by_one)):.2f} s", sizes(grown, types)],
        ["load", f"{seconds(partial(Catalog.load, file)):.2f} s", f"{file.stat().st_size / 1e3:.0f} kB"],
        ["update with nothing new", f"{seconds(partial(Catalog.update, file, *types)):.2f} s", ""],
        ["codes alone, one by one", f"{seconds(partial(codes_one_by_one, 'kinds')):.2f} s", 'joins="kinds"'],
        ["codes alone, one by one", f"{seconds(partial(codes_one_by_one, 'any')):.2f} s", 'joins="any"'],
        ["tag of an event", human(tagging), f"{len(type(event).__struct_fields__)} attributes"],
    ]
    return markdown(["1,720 vehicle signals", "time", "result"], rows)


def codes_one_by_one(joins: Any) -> LinePrimes:
    scheme = LinePrimes(joins=joins)
    for name, parents in read_hierarchy(str(VSS)).items():
        scheme.add(name, parents)
    return scheme


GROWING: dict[str, Callable[[], Hierarchy]] = {
    "8,000 siblings": partial(flat, 8000),
    "a chain of 2,000": partial(chain, 2000),
    "3,665 types, 1,476 with several parents": class_library,
}
SCHEMES: dict[str, Callable[[], Scheme]] = {
    "one prime each": OriginalPrimes,
    'joins="kinds"': LinePrimes,
    'joins="any"': lambda: LinePrimes(joins="any"),
}


def codes_table() -> str:
    """Seconds for codes one by one in random order, against one prime each and against the whole hierarchy."""
    return markdown(
        ["codes one by one in random order", "scheme", "time", "against one prime each", "whole hierarchy"],
        [row for name, make in GROWING.items() for row in codes_rows(name, make())],
    )


def codes_rows(name: str, hierarchy: Hierarchy) -> list[list[str]]:
    """A row for each scheme that takes the hierarchy."""
    order = any_ready(hierarchy, 1)
    joined = any(len(parents) > 1 for parents in hierarchy.values())
    schemes = {label: make for label, make in SCHEMES.items() if not (joined and label == 'joins="kinds"')}
    single = {label: seconds(partial(add_each, make, hierarchy, order)) for label, make in schemes.items()}
    whole = {label: seconds(partial(add_whole, make, hierarchy)) for label, make in schemes.items()}
    base = single["one prime each"]
    return [
        [name, label, f"{taken:.3f} s", f"{taken / base:.1f}×", f"{whole[label]:.3f} s"]
        for label, taken in single.items()
    ]


def add_each(make: Callable[[], Scheme], hierarchy: Hierarchy, order: list[str]) -> None:
    scheme = make()
    for name in order:
        scheme.add(name, hierarchy[name])


def add_whole(make: Callable[[], Scheme], hierarchy: Hierarchy) -> None:
    make().add_all(hierarchy)


def subscription_table() -> str:
    """Microseconds to make a subscription, and for the generated code of a class per subscription in it."""
    names = {"Subscription": Subscription, "Reading": Reading, "this": this}
    making = least_ns(
        {
            "bare": ("Subscription(Reading)", names),
            "one comparison": ("Subscription(Reading, where=this.value > 3)", names),
            "two comparisons": ("Subscription(Reading, where=(this.value > 3) & (this.place == 'A8'))", names),
        }
    )
    rows = [[f"make a subscription: {name}", human(ns)] for name, ns in making.items()]
    first_publish_ns(1)  # what is imported with the first event is imported now
    rows.append(["generated code of a class, each of 50 subscriptions", human(first_publish_ns(50))])
    return markdown(["", "time"], rows)


def first_publish_ns(count: int) -> float:
    with open_bus() as bus:
        readings = bus.collection(Reading)
        for number in range(count):
            readings.subscribe(id, where=this.value * number > 3)
        return seconds(lambda: readings.publish(Reading(value=1)), times=1) / count * 1e9


if __name__ == "__main__":
    print(catalog_table(), codes_table(), subscription_table(), sep="\n\n")
