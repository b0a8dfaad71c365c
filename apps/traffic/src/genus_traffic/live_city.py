"""A city that runs while somebody looks: `genus studio sim:traffic`, a city file, or the folder of a run.

Every site is a world of its own, and the centre is a bus. Traffic is made as time passes, so a day starts as quickly as
a minute.
"""

import tomllib
from collections.abc import Collection, Iterator, Mapping
from pathlib import Path
from typing import Any

import msgspec

from genus.bus import Bus
from genus.can import World
from genus.errors import BusError
from genus.model import Span
from genus.studio import parse_simulation
from genus_traffic.centre.centre import LiveCentre
from genus_traffic.road.city import default_city
from genus_traffic.road.generator import detections_in_time
from genus_traffic.road.scene import Scene
from genus_traffic.road.scene_file import parse_scene
from genus_traffic.run_folder import CITY, MARKER
from genus_traffic.segment.processes import segment_of
from genus_traffic.segment.segment import SegmentRun
from genus_traffic.types import TYPES

NAME, CENTRE = "traffic", "centre"
FRAMES = 20_000
"""How many frames of each segment are kept, to be drawn."""


class CityOptions(msgspec.Struct, frozen=True):
    """What can be said of a city that runs: `sim:traffic?sites=2&duration=5min`."""

    sites: int | None = None
    """Of the default city only."""
    duration: Span | None = None
    seed: int | None = None
    site: tuple[str, ...] = ()
    """Only these sites."""


def make_city(text: str) -> "CitySystem | None":
    """`traffic`, a city file, or the folder of a run of `genus demo traffic`; `traffic?sites=2&duration=5min`."""
    name, _, _ = text.partition("?")
    path = Path(name)
    is_city = name == NAME or (path.is_dir() and (path / MARKER).exists()) or _is_city_file(path)
    return CitySystem(_scene_of(text)) if is_city else None


def _is_city_file(path: Path) -> bool:
    if path.suffix != ".toml" or not path.is_file():
        return False
    try:
        return "site" in tomllib.loads(path.read_text("utf-8-sig"))
    except (OSError, ValueError):
        return False


def _scene_of(text: str) -> Scene:
    name, options = parse_simulation(text, CityOptions)
    if options.sites is not None and name != NAME:
        raise BusError(f"sim:{text}: {name} says which sites there are; choose one with site=NAME")
    said = {"sites": options.sites, "duration": options.duration, "seed": options.seed}
    given: dict[str, Any] = {key: value for key, value in said.items() if value is not None}
    scene = default_city(**given) if name == NAME else _read_scene(Path(name)).changed(options.duration, options.seed)
    return scene.only(options.site) if options.site else scene


def _read_scene(path: Path) -> Scene:
    """The city of a file, or of the folder of a run."""
    try:
        if path.is_dir():
            return msgspec.json.decode((path / CITY).read_bytes(), type=Scene)
        return parse_scene(path.read_text("utf-8-sig"), str(path))
    except FileNotFoundError:
        raise BusError(f"{path} has no {CITY}; run `genus demo traffic --out {path}` again") from None
    except OSError as problem:
        raise BusError(f"{path} cannot be read: {problem.strerror}") from problem
    except (msgspec.DecodeError, UnicodeDecodeError) as problem:
        raise BusError(f"{path / CITY}: {problem}") from problem


class CitySystem:
    """State: the segments of a city and its centre; a `genus.studio.types.SimulatedSystem`."""

    types: Collection[type] = TYPES

    def __init__(self, scene: Scene) -> None:
        self.scene = scene
        self.centre = LiveCentre(scene.start_us, scene.seed)
        self.segments: dict[str, SegmentRun] = {}
        try:
            for site in scene.sites:
                self.segments[site.name] = SegmentRun(segment_of(scene, site), trace=FRAMES)
        except BaseException:
            self.close()
            raise
        self.worlds: Mapping[str, World] = {name: segment.world for name, segment in self.segments.items()}
        self.buses: Mapping[str, Bus] = {CENTRE: self.centre.bus}

    @property
    def begin_ns(self) -> int:
        """When its traffic begins."""
        return self.scene.start_us * 1000

    @property
    def end_ns(self) -> int:
        """When its minutes are over."""
        return self.scene.end_us * 1000

    @property
    def now_ns(self) -> int:
        """How far it has come: its segments first, and the centre after them."""
        return self.centre.now_ns

    def start(self) -> Iterator[str]:
        """Switch the segments on, one after the other: clocks are synchronised and channels bound."""
        for site in self.scene.sites:
            yield f"switching on {site.name}"
            segment = self.segments[site.name]
            segment.warm_up()
            segment.begin(detections_in_time(site, self.scene))

    def advance(self, until_ns: int) -> None:
        """Let time pass at all sites, and then at the centre."""
        for name, segment in self.segments.items():
            segment.world.run_ns(max(0, until_ns - segment.world.time_ns))
            self.centre.take(name, segment.gateway.take())
        self.centre.advance(until_ns)
        if self._is_refitted():
            self.centre.collector.subscribe_to_confidence()

    def _is_refitted(self) -> bool:
        """Whether the last sensor that is to be replaced is."""
        refits = [segment.refit for segment in self.segments.values() if segment.refit is not None]
        return bool(refits) and all(refit.done_ns is not None for refit in refits)

    def close(self) -> None:
        """Switch everything off."""
        for segment in self.segments.values():
            segment.world.close()
        self.centre.bus.close()
