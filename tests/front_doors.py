"""The modules that programs may import from."""

ROOMS = (
    "genus.bus",
    "genus.can",
    "genus.catalog",
    "genus.cli",
    "genus.codes",
    "genus.errors",
    "genus.filters",
    "genus.lake",
    "genus.model",
    "genus.net",
    "genus.records",
    "genus.targets",
    "genus.testing",
)
TARGETS = tuple(f"genus.targets.{name}" for name in ("arrow", "can", "dispatch", "index", "python", "spark", "topics"))
DOORS = ("genus", *ROOMS, *TARGETS)
