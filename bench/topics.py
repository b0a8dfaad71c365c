"""Keys of events and patterns of subscriptions: what they cost, against a key that is written by hand for its class."""

from typing import Any

from bench.timing import Contestant, human, least_ns, markdown
from genus import Event, Kind, Maybe, Subscription, this
from genus.catalog import Catalog
from genus.targets import topics
from genus.targets.topics import MQTT, ZENOH, EventKeys


class Roadside(Kind): ...


class Plain(Event, Roadside):
    lane: int


class Loop(Event, Roadside, tagged=("place", "source", "category", "speed")):
    lane: int
    category: Maybe[str] = None
    speed: Maybe[float] = None


class Radar(Loop):
    angle: Maybe[float] = None


PLAIN, RADAR = Plain(lane=1), Radar(lane=1, place="A8", speed=31.5)


def plain_key(event: Plain) -> str:
    return f"city/{type(event).__name__}"


def radar_key(event: Radar) -> str:
    place, source = int(event.place is not None), int(event.source is not None)
    return f"city/Loop/{place}/{source}/{int(event.category is not None)}/{int(event.speed is not None)}/Radar"


def run() -> dict[str, float]:
    """Nanoseconds of each."""
    return least_ns(contestants())


def contestants() -> dict[str, Contestant]:
    """The statements; keys by hand and by Genus are the same."""
    catalog = Catalog()
    catalog.register(Plain, Radar)
    plain, radar = EventKeys(Plain, ZENOH, "city"), EventKeys(Radar, ZENOH, "city")
    assert (plain.key(PLAIN), radar.key(RADAR)) == (plain_key(PLAIN), radar_key(RADAR))
    found: dict[str, Contestant] = {
        "a key, by hand": ("key(event)", {"key": plain_key, "event": PLAIN}),
        "a key, `EventKeys`": ("keys.key(event)", {"keys": plain, "event": PLAIN}),
        "a key with four tagged attributes, by hand": ("key(event)", {"key": radar_key, "event": RADAR}),
        "a key with four tagged attributes, `EventKeys`": ("keys.key(event)", {"keys": radar, "event": RADAR}),
        "a key with four tagged attributes, `key_of`": (
            "key_of(event, dialect, realm)",
            {"key_of": topics.key_of, "event": RADAR, "dialect": ZENOH, "realm": "city"},
        ),
        "`parse_key`": ("parse(key)", {"parse": topics.parse_key, "key": topics.key_of(RADAR)}),
        "`Dialect.matches`": (
            "matches(pattern, key)",
            {"matches": MQTT.matches, "pattern": "city/Loop/1/+/+/+/#", "key": radar.key(RADAR)},
        ),
    }
    asked = {
        "a type": Subscription(Radar),
        "a type with a predicate": Subscription(Radar, has="place", where=(this.speed > 30) & (this.lane > 1)),
        "a kind": Subscription(Roadside, has="place"),
    }
    names: dict[str, Any] = {"compile": topics.compile, "dialect": ZENOH, "catalog": catalog}
    for name, subscription in asked.items():
        made = ("compile(asked, dialect, 'city', catalog)", {**names, "asked": subscription})
        found[f"`compile` of {name}"] = made
    return found


def table(times: dict[str, float]) -> str:
    """A row for each."""
    return markdown(["keys and patterns", "time"], [[name, human(ns)] for name, ns in times.items()])


if __name__ == "__main__":
    print(table(run()))
