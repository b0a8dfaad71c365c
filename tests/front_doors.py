"""The modules that programs may import from."""

from pathlib import Path

ROOMS = (
    "genus.bus",
    "genus.can",
    "genus.catalog",
    "genus.cli",
    "genus.codes",
    "genus.devices",
    "genus.errors",
    "genus.filters",
    "genus.lake",
    "genus.model",
    "genus.net",
    "genus.records",
    "genus.studio",
    "genus.targets",
    "genus.testing",
)
NAMES = ("arrow", "c", "can", "coap", "dispatch", "index", "python", "spark", "topics")
TARGETS = tuple(f"genus.targets.{name}" for name in NAMES)
SOURCE = Path(__file__).parents[1] / "src"
TYPES = tuple(f"{room}.types" for room in ROOMS if SOURCE.joinpath(*room.split("."), "types.py").exists())
"""Types that calls return and programs only name in annotations."""
DOORS = ("genus", *ROOMS, *TARGETS, *TYPES)
INTERNAL = tuple(f"{room}.internal" for room in ROOMS if SOURCE.joinpath(*room.split("."), "internal.py").exists())
"""What a room offers to the other rooms only: not to commands, Studio, examples and applications."""
