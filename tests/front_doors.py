"""The modules that programs may import from."""

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
DOORS = ("genus", *ROOMS, *TARGETS)
