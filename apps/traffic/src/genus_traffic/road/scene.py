"""Scenes: a city's sites, their traffic and the refit, from which the generator makes detections."""

import re
from collections.abc import Iterable, Mapping
from datetime import UTC, datetime, timedelta
from difflib import get_close_matches
from typing import Annotated, Literal, Self, TypeAlias

import msgspec

from genus.errors import GenusError
from genus.model import Span, seconds
from genus_traffic.types import Category

SiteKind: TypeAlias = Literal["signals", "motorway", "street"]
KINDS: tuple[SiteKind, ...] = ("signals", "motorway", "street")

Share: TypeAlias = Annotated[float, msgspec.Meta(ge=0, le=1)]
Seconds: TypeAlias = Annotated[float, msgspec.Meta(gt=0, le=86_400)]

MAX_LANES = 8
"""A sensor's heartbeat has one bit per lane, and eight bits."""
MAX_SITES = 100
LAST_REFIT = 0.8
"""The share of the time by which all sites are refitted, unless a scene sets `apart`."""

_NAME = re.compile(r"\w[\w .-]{0,47}")
_EPOCH = datetime(1970, 1, 1, tzinfo=UTC)


class SceneError(GenusError, ValueError):
    """A city file, truth file or file of edges cannot be used; the message names the file and the key."""


class Signal(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """A traffic light with its stop line right behind the loops; it is green for all lanes at once."""

    cycle_s: Seconds = 60.0
    green_s: Seconds = 28.0
    """Of which the last three seconds are amber."""
    offset_s: Annotated[float, msgspec.Meta(ge=0)] = 0.0
    """When its first green begins, counted from the start."""
    line_m: Annotated[float, msgspec.Meta(ge=0, le=100)] = 3.0
    """From the lower loops to the stop line: a queue stands on the loops and between them."""

    def __post_init__(self) -> None:
        if self.green_s >= self.cycle_s:
            raise SceneError(f"green is {self.green_s:g} s, which leaves no red in a cycle of {self.cycle_s:g} s")


class Waves(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """Waves of congestion, which travel against the traffic and reach the loops at intervals."""

    every_s: Seconds = 180.0
    """From the start of one wave to the start of the next, on average."""
    lasts_s: Seconds = 45.0
    """How long a wave stays at the loops, on average."""
    speed_mps: Annotated[float, msgspec.Meta(gt=0, le=30)] = 2.0
    """How fast vehicles are in it, on average; some waves stand still for a while."""


class Site(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """A site: lanes with a pair of loops each. Its kind sets the defaults of the other values."""

    name: str
    place: str
    kind: SiteKind
    lanes: Annotated[int, msgspec.Meta(ge=1, le=MAX_LANES)]
    flow_per_hour: Annotated[float, msgspec.Meta(ge=0, le=3600)]
    """Vehicles that enter each lane."""
    limit_mps: Annotated[float, msgspec.Meta(ge=1, le=70)]
    mix: Mapping[Category, Annotated[float, msgspec.Meta(ge=0)]]
    """The weight of each category among the vehicles."""
    signal: Signal | None = None
    waves: Waves | None = None
    lane_changes: Share = 0.0
    """The share of cars that change lane over the loops; of longer vehicles it is larger."""
    missed_hits: Share = 0.0
    """The share of hits that a loop does not detect at all."""
    missed_edges: Share = 0.0
    """The share of the edges of all other hits that are lost."""
    misread: Share = 0.0
    """The share of categories that upper loops misread."""

    def __post_init__(self) -> None:
        if not _NAME.fullmatch(self.name):
            raise SceneError(
                f"name is {self.name!r}; it must be letters, digits, spaces and '.-_', at most 48 of them, "
                "as files are named after it"
            )
        if not self.place.strip():
            raise SceneError("place is empty; leave it out, and it is the name")
        if not sum(self.mix.values()) > 0:
            raise SceneError("mix has no category with a weight above 0; write such as { car = 0.9, truck = 0.1 }")


class Refit(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """The plan by which the upper sensors of sites are replaced, one site after the other."""

    begins: Share = 0.5
    """When the first sensor is replaced, as a share of the time."""
    apart_s: Annotated[float, msgspec.Meta(ge=0)] | None = None
    """The time from one site to the next; None: all are done after four fifths of the time."""
    order: tuple[str, ...] | None = None
    """Names of sites; a site that is not listed keeps its old sensor. None: all, in the order of the scene."""


class Scene(msgspec.Struct, frozen=True, kw_only=True):
    """A city for some minutes. The same scene gives the same traffic on every machine.

    >>> scene = Scene(start=datetime(2026, 3, 2, 7, 30, tzinfo=UTC), minutes=10, seed=1, sites=())
    Traceback (most recent call last):
    genus_traffic.road.scene.SceneError: a city has 1 to 100 sites, not 0
    """

    start: Annotated[datetime, msgspec.Meta(tz=True)]
    minutes: Annotated[float, msgspec.Meta(gt=0, le=1440)]
    seed: int
    sites: tuple[Site, ...]
    refit: Refit | None = None

    def __post_init__(self) -> None:
        if not 1 <= len(self.sites) <= MAX_SITES:
            raise SceneError(f"a city has 1 to {MAX_SITES} sites, not {len(self.sites)}")
        if not 0 < self.minutes <= 1440:
            raise SceneError(f"minutes is {self.minutes:g}; it must be above 0 and at most 1440")
        if self.start.tzinfo is None:
            raise SceneError(f"start is {self.start}, without a time zone; write such as 2026-03-02T07:30:00Z")
        _refuse_duplicates(self.names, "sites")
        self._check_refit()

    @property
    def names(self) -> tuple[str, ...]:
        """The names of its sites."""
        return tuple(site.name for site in self.sites)

    @property
    def start_us(self) -> int:
        """Its first instant, in microseconds since 1970."""
        return (self.start - _EPOCH) // timedelta(microseconds=1)

    @property
    def end_us(self) -> int:
        """The instant after its last one."""
        return self.start_us + round(self.minutes * 60_000_000)

    def site(self, name: str) -> Site:
        """The site of a name."""
        found = next((site for site in self.sites if site.name == name), None)
        if found is None:
            raise SceneError(f"there is no site {name!r}; {suggest(name, self.names)}")
        return found

    def only(self, names: Iterable[str]) -> Self:
        """The scene with some of its sites; their traffic and their order in the refit stay as they are."""
        chosen = {self.site(name).name for name in names}
        refit = self.refit
        if refit is not None and refit.order is not None:
            refit = msgspec.structs.replace(refit, order=tuple(name for name in refit.order if name in chosen))
        sites = tuple(site for site in self.sites if site.name in chosen)
        return msgspec.structs.replace(self, sites=sites, refit=refit)

    def changed(self, duration: Span | None, seed: int | None) -> Self:
        """The scene with another duration or seed; None leaves it as it is."""
        minutes = self.minutes if duration is None else minutes_of(duration)
        return msgspec.structs.replace(self, minutes=minutes, seed=self.seed if seed is None else seed)

    def refit_us(self, name: str) -> int | None:
        """When the upper sensor of a site is replaced; None if it is left as it is."""
        order = self.refit_order
        if self.refit is None or name not in order:
            self.site(name)
            return None
        begin = self.refit.begins * self.minutes * 60_000_000
        return self.start_us + round(begin + order.index(name) * self._apart_us())

    @property
    def refit_order(self) -> tuple[str, ...]:
        """The sites that are refitted, one after the other."""
        if self.refit is None:
            return ()
        return self.names if self.refit.order is None else self.refit.order

    @property
    def refitted_us(self) -> int | None:
        """When the last site is refitted; None if none is."""
        return self.refit_us(self.refit_order[-1]) if self.refit_order else None

    def _apart_us(self) -> float:
        assert self.refit is not None
        if self.refit.apart_s is not None:
            return self.refit.apart_s * 1_000_000
        share = max(LAST_REFIT - self.refit.begins, 0)
        return share * self.minutes * 60_000_000 / max(len(self.refit_order) - 1, 1)

    def _check_refit(self) -> None:
        _refuse_duplicates(self.refit_order, "refit.order")
        for name in self.refit_order:
            if name not in self.names:
                raise SceneError(f"refit.order names {name!r}, which is no site; {suggest(name, self.names)}")
        last_us = self.refitted_us
        if last_us is not None and last_us >= self.end_us:
            raise SceneError(
                f"refit: the last site is refitted {(last_us - self.start_us) / 60e6:.1f} min after the start, "
                f"but the scene ends after {self.minutes:g} min; make begins or apart smaller"
            )


def minutes_of(duration: Span, what: str = "duration") -> float:
    """The minutes of a scene's duration; SceneError if it is no length of time up to a day."""
    minutes = seconds(duration, what, zero=False, error=SceneError) / 60
    if minutes > 1440:
        raise SceneError(f"{what} is {duration!r}; a scene takes at most a day")
    return minutes


def suggest(word: str, known: Iterable[str]) -> str:
    """Advice for an unknown word: the closest known one, or all of them.

    >>> suggest("lnaes", ["lanes", "limit"]), suggest("x", ["lanes", "limit"])
    ("did you mean 'lanes'?", 'known are lanes, limit')
    """
    names = list(known)
    close = get_close_matches(word, names, n=1) or [name for name in names if word and name.startswith(word)]
    return f"did you mean {close[0]!r}?" if close else f"known are {', '.join(names)}"


def _refuse_duplicates(names: Iterable[str], what: str) -> None:
    """Refuse equal names, also those that differ by case only: files are named after them."""
    seen: dict[str, str] = {}
    for name in names:
        other = seen.get(name.casefold())
        if other is not None:
            raise SceneError(f"{what}: {name!r} is there twice" + ("" if other == name else f", once as {other!r}"))
        seen[name.casefold()] = name
