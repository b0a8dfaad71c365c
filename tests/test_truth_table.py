"""One meaning everywhere: every target gives the oracle's answer on every generated case.

The oracle is `Subscription.matches`. A target is a function from subscriptions and events to a table of answers; a
new target joins by one line in TARGETS.
"""

import tempfile
from collections.abc import Callable, Iterator, Sequence
from functools import cache
from pathlib import Path
from typing import Any
from unittest.mock import patch

import msgspec
import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from genus import Collection, Event, Subscription, open_bus
from genus.bus import RecordingWriter, read_recording, replay
from genus.catalog import Catalog
from genus.errors import DeviceError
from genus.filters import TypesByName, parse_again
from genus.filters.types import AllOf
from genus.lake import LakeReader
from genus.lake._query.route_plan import plan_routes
from genus.lake._query.subscription_list import RouteEntry
from genus.lake._tables import part_writer
from genus.lake._tables.commits import POSITION
from genus.lake._tables.lake_catalog import CatalogFile
from genus.model import vector
from genus.model._values import unread_values
from genus.targets import arrow, can, coap, python, topics
from genus.targets.coap import ServerTests
from genus.targets.index import SubscriptionIndex
from genus.targets.topics import Dialect
from genus.testing import compiled_expressions, spark_session
from genus.testing._generator import pool
from tests import generators
from tests.evolutions import WIDER, unread_events
from tests.examples import some_of
from tests.generators import Generator, Sampler, edge_events, edge_subscriptions

from .devices.compiled import NOT_WANTED, OK, UNKNOWN_TYPE, device_of, frame_of
from .lake.stored import add_events, answers, create_lake
from .scalars import scalars

Table = list[list[bool]]
Target = Callable[[Sequence[Subscription], Sequence[Event]], Table]


def oracle(subscriptions: Sequence[Subscription], events: Sequence[Event]) -> Table:
    return [[subscription.matches(event) for event in events] for subscription in subscriptions]


def text_form(subscriptions: Sequence[Subscription], events: Sequence[Event]) -> Table:
    """Not a target, but held to the same: what the text says is what was meant."""
    known = TypesByName({cls for subscription in subscriptions for cls in subscription.types})
    reread = [parse_again(str(subscription), known) for subscription in subscriptions]
    assert reread == list(subscriptions)
    return oracle(reread, events)


def generated_python(subscriptions: Sequence[Subscription], events: Sequence[Event]) -> Table:
    return [[bool(matches(event)) for event in events] for matches in map(python.compile, subscriptions)]


def arrow_batches(subscriptions: Sequence[Subscription], events: Sequence[Event]) -> Table:
    table = [[False] * len(events) for _ in subscriptions]
    by_family: dict[str, list[int]] = {}
    for position, event in enumerate(events):
        by_family.setdefault(vector(type(event)).scope, []).append(position)
    for positions in by_family.values():
        batch = arrow.to_batch([events[position] for position in positions])
        for row, subscription in zip(table, subscriptions, strict=True):
            scopes = {vector(cls).scope for cls in subscription.classes()}
            if vector(type(events[positions[0]])).scope in scopes:
                for position, answer in zip(positions, arrow.compile(subscription).mask(batch), strict=True):
                    row[position] = answer.as_py()
    return table


def index(subscriptions: Sequence[Subscription], events: Sequence[Event]) -> Table:
    indexed = SubscriptionIndex()
    handles = [indexed.add(subscription) for subscription in subscriptions]
    matches = [set(map(int, indexed.match(event))) for event in events]
    return [[handle in found for found in matches] for handle in handles]


def one_channel_for_all(subscriptions: Sequence[Subscription], events: Sequence[Event]) -> Table:
    """The bus with all subscriptions at once, so that groups, shared parts and counters are in play."""
    table = [[False] * len(events) for _ in subscriptions]
    now = 0
    with open_bus("local:") as bus:
        listeners = []
        for row, subscription in zip(table, subscriptions, strict=True):

            def mark(_: object, row: list[bool] = row) -> None:
                assert not row[now], "delivered twice"
                row[now] = True

            collection: Collection[Any] = bus.collection(AllOf(subscription.types))
            asked: Any = {"exact": subscription.exact, "has": subscription.has, "lacks": subscription.lacks}
            listeners.append(collection.subscribe(mark, where=subscription.where, **asked))
        for now, event in enumerate(events):  # noqa: B007
            bus.publish(event)
        assert [listener.counters.delivered for listener in listeners] == [sum(row) for row in table]
        assert not any(listener.counters.failed for listener in listeners)
    return table


def replayed(subscriptions: Sequence[Subscription], events: Sequence[Event]) -> Table:
    """A recording, read back and replayed through each subscription."""
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / "events.genus"
        with RecordingWriter(path) as writer:
            for position, event in enumerate(events):
                writer.write(event, at_us=position)
        table = []
        for subscription in subscriptions:
            row = [False] * len(events)
            recording = read_recording(path, {type(event) for event in events})
            found: list[Event] = []
            replay(recording, found.append, subscription)
            positions = {recorded.at_us for recorded in recording if subscription.matches(recorded.event)}
            assert len(found) == len(positions)
            assert not recording.problems
            table.append([position in positions for position in range(len(row))])
        return table


NODE_AND_PRIORITY = 0x0F2B << 14


def agreed(subscriptions: Sequence[Subscription], events: Sequence[Event]) -> Catalog:
    """A catalog with every type that is involved, and some that are not."""
    catalog = Catalog()
    catalog.register(generators, *(cls for asked in subscriptions for cls in asked.types), *map(type, events))
    return catalog


def acceptance_filters(subscriptions: Sequence[Subscription], events: Sequence[Event]) -> Table:
    """A CAN controller, and behind it a receiver that tests only what the controller leaves to it."""
    catalog = agreed(subscriptions, events)
    identifiers = [NODE_AND_PRIORITY | catalog.etag_of(event) for event in events]
    table = []
    for made in (can.compile(subscription, catalog) for subscription in subscriptions):
        passed = map(made.accepts, identifiers)
        left = (lambda _: True) if made.residual is None else python.compile(made.residual)
        table.append([passes and bool(left(event)) for passes, event in zip(passed, events, strict=True)])
    return table


def requests(tests: ServerTests) -> Target:
    """A CoAP server that tests what a request asks, and behind it a receiver that tests what the server leaves."""

    def run(subscriptions: Sequence[Subscription], events: Sequence[Event]) -> Table:
        catalog = agreed(subscriptions, events)
        named = [(catalog.code(type(event)), catalog.tag(event), event) for event in events]
        table = []
        for made in (coap.compile(subscription, catalog, tests) for subscription in subscriptions):
            asked = coap.read_query(made.code, made.query, catalog) if made.code is not None else None
            assert not isinstance(asked, str), f"{made.subscription}: {asked}"
            left = (lambda _: True) if made.residual is None else python.compile(made.residual)
            passed = [asked is not None and asked.accepts(*each) for each in named]
            table.append([passes and bool(left(event)) for passes, event in zip(passed, events, strict=True)])
        return table

    return run


def key_patterns(dialect: Dialect, with_catalog: bool) -> Target:
    """A network that delivers by key, and behind it a receiver that tests only what the patterns leave to it."""

    def run(subscriptions: Sequence[Subscription], events: Sequence[Event]) -> Table:
        catalog = agreed(subscriptions, events) if with_catalog else None
        keys = [topics.key_of(event, dialect, "city") for event in events]
        table = []
        for made in (topics.compile(subscription, dialect, "city", catalog) for subscription in subscriptions):
            passing = {key: made.accepts(key) for key in set(keys)}
            left = (lambda _: True) if made.residual is None else python.compile(made.residual)
            table.append([passing[key] and bool(left(event)) for key, event in zip(keys, events, strict=True)])
        return table

    return run


def lake_tables(subscriptions: Sequence[Subscription], events: Sequence[Event]) -> Table:
    """Conditions on the columns of a lake's tables, one table to a family."""
    with compiled_expressions(session := spark_session()):
        return answers(session, subscriptions, events)


def local_reader(subscriptions: Sequence[Subscription], events: Sequence[Event]) -> Table:
    """A lake in row groups so small that some are skipped, read without Spark."""
    with tempfile.TemporaryDirectory() as folder, patch.object(part_writer, "ROW_GROUP", 4):
        asked = (cls for subscription in subscriptions for cls in subscription.types)
        store = create_lake(Path(folder) / "lake", generators, *asked, *map(type, events))
        add_events(store, events)
        lake = LakeReader(store.path)
        table = []
        for subscription in subscriptions:
            found = lake.read(subscription, columns=[POSITION])
            positions = found.to_arrow().column(POSITION).to_pylist()
            assert len(set(positions)) == len(positions) == found.count()
            table.append([position in set(positions) for position in range(len(events))])
        return table


def routing(subscriptions: Sequence[Subscription], events: Sequence[Event]) -> Table:
    """The files of a lake, routed to all subscriptions at once by the kernel that runs in tasks."""
    table = [[False] * len(events) for _ in subscriptions]
    with tempfile.TemporaryDirectory() as folder:
        asked = (cls for subscription in subscriptions for cls in subscription.types)
        store = create_lake(Path(folder) / "lake", generators, *asked, *map(type, events))
        add_events(store, events)
        state, entries = store.state(), [RouteEntry("ann", subscription) for subscription in subscriptions]
        plan = plan_routes(entries, state.shapes, CatalogFile(store.files, store.path).catalog)
        for family in plan.families:
            files = store.file_paths(state.table(family))
            stored = pa.concat_tables([pq.ParquetFile(path).read() for path in files])
            rows, numbers = plan.plans[family].match(stored)
            positions = stored.column(POSITION).to_numpy()[rows].tolist()
            pairs = list(zip(numbers.tolist(), positions, strict=True))
            assert len(set(pairs)) == len(pairs)
            for number, position in pairs:
                table[number][position] = True
    return table


def devices(codec: str) -> Target:
    """Generated C, given payloads as they are on a CAN bus; behind it a receiver tests what is left to it."""

    def run(subscriptions: Sequence[Subscription], events: Sequence[Event]) -> Table:
        catalog = agreed(subscriptions, events)
        try:
            device = device_of(subscriptions, catalog, codec=codec)
        except DeviceError as problem:
            if "no subscription can match" not in str(problem):
                raise
            return [[False] * len(events) for _ in subscriptions]
        found = device.receive(frame_of(event, catalog) for event in events)
        assert all(status in (OK, NOT_WANTED, UNKNOWN_TYPE) for status, _, _ in found)
        table = []
        for number, made in enumerate(device.firmware.filters):
            left = (lambda _: True) if made.residual is None else python.compile(made.residual)
            passed = [number in hits for _, hits, _ in found]
            table.append([passes and bool(left(event)) for passes, event in zip(passed, events, strict=True)])
        return table

    return run


TARGETS: dict[str, Target] = {
    "text": text_form,
    "python": generated_python,
    "arrow": arrow_batches,
    "index": index,
    "channel": one_channel_for_all,
    "replay": replayed,
    "can": acceptance_filters,
    "coap": requests("where"),
    "small coap": requests("masks"),
    "zenoh": key_patterns(topics.ZENOH, with_catalog=True),
    "mqtt": key_patterns(topics.MQTT, with_catalog=False),
    "nats": key_patterns(topics.NATS, with_catalog=True),
    "spark": lake_tables,
    "local": local_reader,
    "route": routing,
    "c": devices("table"),
    "c-straight": devices("straight"),
}


def check(
    target: str, subscriptions: Sequence[Subscription], events: Sequence[Event], expected: Table | None = None
) -> int:
    """Compare a target with the oracle; returns how many cases that were."""
    expected = oracle(subscriptions, events) if expected is None else expected
    found = TARGETS[target](subscriptions, events)
    for subscription, wanted, given in zip(subscriptions, expected, found, strict=True):
        for event, right, answer in zip(events, wanted, given, strict=True):
            assert answer is right, f"{target} says {answer}: {subscription} on {event!r}"
    return len(subscriptions) * len(events)


EVERY = 7
"""Where a case costs most, `make test` has one of so many; it divides no number of tests of a value."""
COSTLY = ("replay", "spark", "local", "c", "c-straight")
"""Targets that read files for every subscription, or compile it; `make test` has one of EVERY² cases of them."""


SAME_VALUES = ("mqtt", "nats")
"""Targets that differ from zenoh's only in keys, which hold no values; their edge values are left to the long run."""


@cache
def edges(attribute: str) -> tuple[list[Subscription], list[Event], Table]:
    """The subscriptions and events of an attribute and what the oracle says of them: the same for every target."""
    subscriptions, events = list(edge_subscriptions(attribute)), edge_events(attribute)
    return subscriptions, events, oracle(subscriptions, events)


def edge_cases() -> Iterator[Any]:
    """Every target with every attribute; in the fast suite a part of the tests of one attribute of each type."""
    for target in TARGETS:
        seen: set[object] = set()
        for attribute in (one for one in vector(Sampler) if one.name not in ("late", "extra")):
            name = f"{attribute.name}-{target}"
            yield pytest.param(target, attribute.name, 1, id=name, marks=pytest.mark.slow)
            is_left_out = target in SAME_VALUES or (target in COSTLY and len(seen) % 3 > 0)
            if attribute.type not in seen and not is_left_out:
                every = EVERY**2 if target in COSTLY else EVERY
                yield pytest.param(target, attribute.name, every, id=f"{name}-part")
            seen.add(attribute.type)


SOURCES = (
    "Event has source",
    "Event lacks source",
    "Event where source == 'a'",
    "Event where not source == 'a'",
    "Event where source is absent or source < 'b'",
    "Event where source in ('a', '7') or place == 'a'",
    "Event where source startswith 'A' or length(source) == 1",
    "Watched has source",
    "Watched where not source is present and place is absent",
    "Watched lacks source where time is absent",
    "Stranger has source",
    "Stranger lacks source",
    "Stranger where source == 7",
    "Stranger where source != 7",
    "Stranger where source in (7, 8, 255) and number is absent",
    "Stranger where source + 1 > 8 or source is absent",
    "Stranger & Watched where source >= 7",
    "Sampler where source == 'a'",
)
"""Subscriptions to a context attribute that one family has as a number."""


@pytest.mark.parametrize("target", TARGETS)
def test_a_source_that_is_a_number_is_absent_for_subscriptions_that_mean_a_text(target: str) -> None:
    """The family of Stranger has numbers for `source`; `Event` and kinds mean the text, which its events lack."""
    types = [Event, generators.Watched, generators.Stranger, Sampler]
    asked = [Subscription.parse(text, types) for text in SOURCES]
    numbers = [generators.Stranger(source=source, place=place) for source in (None, 0, 7, 255) for place in (None, "a")]
    texts = [Sampler(source=source, place=place) for source in (None, "", "a", "7", "A8") for place in (None, "a")]
    events = [*numbers, *texts, generators.Bell(source="a")]
    found = oracle(asked, events)
    assert found[0] == [False] * len(numbers) + [event.source is not None for event in (*texts, events[-1])]
    assert any(found[-6]), "a number is compared as one"
    check(target, asked, events)


@pytest.mark.parametrize(("target", "attribute", "every"), list(edge_cases()))
@pytest.mark.filterwarnings("ignore::genus.errors.SubscriptionWarning")
def test_every_operator_at_every_edge_value(target: str, attribute: str, every: int) -> None:
    """Each comparison of each attribute type with each edge value, plain and negated, present, absent and NaN."""
    subscriptions, events, expected = edges(attribute)
    check(target, subscriptions[::every], events, expected[::every])


BY_KEY = ("zenoh", "mqtt", "nats")
"""Targets that test the presence of tagged attributes as the sender states it, before values are read."""
BY_PAYLOAD = ("c", "c-straight")
"""Targets that get payloads; an event without a required value has none on CAN."""


@pytest.mark.parametrize(
    "target", [pytest.param(each, marks=pytest.mark.slow) if each in COSTLY else each for each in TARGETS]
)
@pytest.mark.filterwarnings("ignore::genus.errors.SubscriptionWarning")
def test_a_value_that_cannot_be_read_is_absent(target: str) -> None:
    """Whatever it is, and also if the class requires it; an attribute that the class does not have changes nothing."""
    tagged = vector(Sampler).find("number").name, "colour"
    names = [name for name in WIDER if not (target in BY_KEY and name in tagged)]
    events = unread_events(names, required=target not in BY_PAYLOAD)
    if target in BY_KEY:
        events = [event for event in events if not unread_values(event).keys() & set(tagged)]
    asked = [one for name in names[:-1] for one in list(edge_subscriptions(name))[:: 5 * EVERY]]
    for name in names[:-1]:
        asked += [Subscription(cls, has=name) for cls in (Sampler, generators.MarkedSampler)]
        asked += [Subscription(cls, lacks=name) for cls in (Sampler, generators.MarkedSampler)]
        asked += [Subscription.parse(f"MarkedSampler where {name} is absent or octet == 7", [generators.MarkedSampler])]
    found = oracle(asked, events)
    assert any(map(any, found))
    assert not all(map(all, found))
    check(target, asked, events)


SCALARS = ("flag", "tiny", "number", "real", "single", "text", "blob", "span", "time")
"""Attributes of every type that has values of numpy or pandas."""


SCALAR_CASES = [
    *((target, name) for target in TARGETS if target not in (*COSTLY, *SAME_VALUES) for name in SCALARS),
    *((target, name) for target in COSTLY if target != "spark" for name in SCALARS[::3]),
]


@pytest.mark.parametrize("case", some_of(SCALAR_CASES, 5), ids=str)
@pytest.mark.filterwarnings("ignore::genus.errors.SubscriptionWarning")
def test_values_of_numpy_and_pandas_are_the_plain_values_that_they_equal(case: tuple[str, str]) -> None:
    """Also in events that were not made by a constructor, and in every operator; constants are plain at once."""
    target, name = case
    pairs = [
        (Sampler(**{name: value}), msgspec.structs.replace(Sampler(), **{name: scalar}))
        for value in pool(vector(Sampler).find(name).type)
        for scalar in scalars(value)
    ]
    plain, foreign = [one for one, _ in pairs], [other for _, other in pairs]
    asked = list(edge_subscriptions(name))[:: EVERY * 2]
    assert oracle(asked, foreign) == oracle(asked, plain)
    check(target, asked, foreign)


@pytest.mark.parametrize("target", TARGETS)
@pytest.mark.parametrize("seed", some_of(range(3), 3))
@pytest.mark.filterwarnings("ignore::genus.errors.SubscriptionWarning")
def test_random_subscriptions_on_random_events(target: str, seed: int) -> None:
    """Types, kinds, exact, all_of, has, lacks and nested predicates, all mixed."""
    generator = Generator(seed)
    check(target, generator.subscriptions(40), generator.events(40))


SEEDS = {"spark": 100}
"""How many seeds of 2,025 cases the long run has where a case costs most; elsewhere 500."""


@pytest.mark.slow
@pytest.mark.parametrize("target", TARGETS)
@pytest.mark.filterwarnings("ignore::genus.errors.SubscriptionWarning")
def test_a_million_random_cases(target: str) -> None:
    """The long run: no disagreement in a million cases per target, in 200,000 on Spark."""
    seeds, cases = SEEDS.get(target, 500), 0
    for seed in range(1000, 1000 + seeds):
        generator = Generator(seed)
        cases += check(target, generator.subscriptions(45), generator.events(45))
    assert cases == seeds * 45 * 45


@pytest.mark.parametrize("seed", range(5))
def test_acceptance_filters_never_accept_too_little(seed: int) -> None:
    """Whatever matches passes: each subscription's own filters, and all of them fitted into any number of banks."""
    generator = Generator(seed)
    subscriptions, events = generator.subscriptions(30), generator.events(60)
    catalog = agreed(subscriptions, events)
    filters = [can.compile(subscription, catalog) for subscription in subscriptions]
    banks = [can.fit_bank(filters, catalog, banks=banks) for banks in (1, 2, 3, 5, 8, 40)]
    refused = 0
    for event in events:
        identifier = NODE_AND_PRIORITY | catalog.etag_of(event)
        refused += sum(not made.accepts(identifier) for made in filters)
        for made in filters:
            if made.subscription.matches(event):
                assert made.accepts(identifier), made.explain()
                assert all(bank.accepts(identifier) for bank in banks)
    assert refused > len(filters) * len(events) / 4, "filters that let everything pass would prove nothing"


@pytest.mark.parametrize("dialect", [topics.ZENOH, topics.MQTT, topics.NATS], ids=lambda dialect: dialect.name)
@pytest.mark.parametrize("seed", range(3))
def test_key_patterns_never_accept_too_little(dialect: Dialect, seed: int) -> None:
    """Whatever matches passes, by the types of a catalog and by those of the process."""
    generator = Generator(seed)
    subscriptions, events = generator.subscriptions(30), generator.events(60)
    refused = 0
    for catalog in (agreed(subscriptions, events), None):
        for made in (topics.compile(subscription, dialect, "city", catalog) for subscription in subscriptions):
            passed = [made.accepts(topics.key_of(event, dialect, "city")) for event in events]
            refused += passed.count(False)
            wanted = map(made.subscription.matches, events)
            assert all(passes for passes, wants in zip(passed, wanted, strict=True) if wants), made.explain()
    assert refused > 2 * len(subscriptions) * len(events) / 4, "patterns that accept everything would prove nothing"


def test_the_cases_are_not_trivial() -> None:
    """A suite in which nothing matches, or everything does, would prove nothing."""
    generator = Generator(0)
    table = oracle(generator.subscriptions(200), generator.events(50))
    share = sum(map(sum, table)) / (200 * 50)
    assert 0.03 < share < 0.6
    assert sum(1 for row in table if 0 < sum(row) < len(row)) > 80
