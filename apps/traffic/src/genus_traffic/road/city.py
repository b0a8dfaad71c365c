"""Cities that need no file: what is typical of each kind of site, and a mixture of them with names."""

from collections.abc import Mapping
from datetime import UTC, datetime
from random import Random
from typing import Any

import msgspec

from genus.model import Span
from genus_traffic.road.scene import KINDS, MAX_SITES, Refit, Scene, SceneError, Site, SiteKind, minutes_of

START = datetime(2026, 3, 2, 7, 30, tzinfo=UTC)
"""A Monday morning."""

TYPICAL: Mapping[SiteKind, Mapping[str, Any]] = {
    "signals": {
        "lanes": 2,
        "flow_per_hour": 620.0,
        "limit_mps": 14.0,
        "mix": {"car": 0.72, "truck": 0.08, "bus": 0.05, "motorcycle": 0.15},
        "signal": {"cycle_s": 60.0, "green_s": 28.0},
        "lane_changes": 0.06,
        "missed_hits": 0.004,
        "missed_edges": 0.001,
        "misread": 0.05,
    },
    "motorway": {
        "lanes": 3,
        "flow_per_hour": 1150.0,
        "limit_mps": 30.0,
        "mix": {"car": 0.77, "truck": 0.16, "bus": 0.02, "motorcycle": 0.05},
        "waves": {"every_s": 190.0, "lasts_s": 40.0, "speed_mps": 2.0},
        "lane_changes": 0.08,
        "missed_hits": 0.004,
        "missed_edges": 0.001,
        "misread": 0.05,
    },
    "street": {
        "lanes": 2,
        "flow_per_hour": 550.0,
        "limit_mps": 14.0,
        "mix": {"car": 0.78, "truck": 0.07, "bus": 0.05, "motorcycle": 0.10},
        "lane_changes": 0.04,
        "missed_hits": 0.004,
        "missed_edges": 0.001,
        "misread": 0.05,
    },
}
"""The defaults of a site, by its kind."""

_QUARTERS = (
    *("Harbour", "Mill", "Castle", "Market", "Station", "Church", "River", "Garden", "Museum", "Orchard", "Tannery"),
    *("Foundry", "Abbey", "Chapel", "Granary", "Lighthouse", "Theatre", "Vineyard", "Windmill", "Brewery", "Quarry"),
    *("Arsenal", "College", "Hospital", "Palace", "Ferry", "Customs", "Stadium", "Library", "Meadow", "Chestnut"),
    *("Linden", "Poplar", "Juniper"),
)


def default_city(sites: int = 4, duration: Span = "10 min", seed: int = 1) -> Scene:
    """A city with sites of all kinds, refitted from half way on. Further sites do not change the first ones.

    >>> [(site.name, site.kind) for site in default_city(3).sites]
    [('harbour-crossing', 'signals'), ('a8-km12', 'motorway'), ('vineyard-street', 'street')]
    """
    if not 1 <= sites <= MAX_SITES:
        raise SceneError(f"a city has 1 to {MAX_SITES} sites, not {sites}")
    made = tuple(_make_site(number, seed) for number in range(sites))
    return Scene(start=START, minutes=minutes_of(duration), seed=seed, sites=made, refit=Refit())


def _make_site(number: int, seed: int) -> Site:
    """A site with the defaults of its kind, and with a random flow and signal offset."""
    rng = Random(f"{seed}/city/{number}")
    turn, which = divmod(number, len(KINDS))
    kind = KINDS[which]
    name, place = _name(kind, turn)
    made = msgspec.convert({**TYPICAL[kind], "name": name, "place": place, "kind": kind}, Site)
    signal = made.signal
    if signal is not None:
        signal = msgspec.structs.replace(signal, offset_s=float(rng.randrange(int(signal.cycle_s))))
    flow = round(made.flow_per_hour * rng.uniform(0.85, 1.15))
    return msgspec.structs.replace(made, flow_per_hour=float(flow), signal=signal)


def _name(kind: SiteKind, turn: int) -> tuple[str, str]:
    """A site's name, and the place that its events carry."""
    if kind == "motorway":
        kilometre = 12 + 7 * turn
        return f"a8-km{kilometre}", f"A8/km{kilometre}"
    road, first = ("Crossing", 0) if kind == "signals" else ("Street", len(_QUARTERS) // 2)
    quarter = _QUARTERS[(first + turn) % len(_QUARTERS)]
    return f"{quarter.lower()}-{road.lower()}", f"{quarter} {road}"
