"""All pictures by name."""

from collections.abc import Callable
from pathlib import Path

from docs.pictures import bus, idea, lake, refit, rooms, sequence, site, types, whole
from docs.pictures.pen import Pen

DOCS = Path(__file__).parents[1]
PICTURES: dict[str, Callable[[], Pen]] = {
    "whole": whole.whole,
    "rooms": rooms.rooms,
    "idea": idea.one_subscription,
    "sieves": idea.sieves,
    "family": types.family,
    "vector": types.vector,
    "identifier": bus.identifier,
    "channels": bus.channels,
    "lake": lake.lake,
    "site": site.site,
    "refit": refit.refit,
    "number": sequence.number,
    "binding": sequence.binding,
    "roll-call": sequence.roll_call,
}


def write_all() -> list[Path]:
    """Draw them all; the paths that were written."""
    return [_write(name, draw()) for name, draw in PICTURES.items()]


def _write(name: str, drawn: Pen) -> Path:
    path = DOCS / f"{name}.svg"
    path.write_text(drawn.svg(), "utf-8")
    return path
