"""The rooms of `src/genus` with their doors, drawn from the imports and the layers in pyproject.toml."""

import ast
import tomllib
from pathlib import Path

from docs.pictures.pen import Pen

ROOT = Path(__file__).parents[2]
SOURCE = ROOT / "src" / "genus"
PURPOSES = {
    "cli": "the genus command",
    "studio": "the live page",
    "testing": "for users' tests",
    "lake": "tables on Spark",
    "devices": "C for controllers",
    "can": "CAN buses, DBC, logs",
    "net": "networks, gateways",
    "bus": "publish and subscribe",
    "targets": "subscriptions compiled",
    "catalog": "numbers agreed on",
    "filters": "subscriptions as data",
    "records": "records of others",
    "model": "event types",
    "codes": "primes, event tags",
    "errors": "by what callers can do",
}
COLOURS = {"lake": "purple", "can": "red", "devices": "orange", "net": "green", "studio": "green", "cli": "green"}
WIDTH, BOX, STEP = 760, 212, 78


def room_layers() -> list[list[str]]:
    """The rooms in layers, the highest first, as import-linter has them; private modules are left out."""
    contracts = tomllib.loads((ROOT / "pyproject.toml").read_text())["tool"]["importlinter"]["contracts"]
    layers = next(each["layers"] for each in contracts if each.get("containers") == ["genus"])
    rooms = ([room for part in layer.split("|") if not (room := part.strip()).startswith("_")] for layer in layers)
    return [layer for layer in rooms if layer]


def room_imports() -> dict[str, set[str]]:
    """For each room the rooms that its modules import, those in functions and for type checkers included."""
    rooms = [room for layer in room_layers() for room in layer]
    return {room: {found for file in _files(room) for found in _imported(file)} & set(rooms) - {room} for room in rooms}


def doors(room: str) -> list[str]:
    """The modules of a room that others may import."""
    names = (name for name in ("types", "internal") if (SOURCE / room / f"{name}.py").exists())
    return [f"genus.{room}", *(f".{name}" for name in names)]


def direct(imports: dict[str, set[str]]) -> dict[str, set[str]]:
    """The imports without those that another import reaches: few enough to draw."""

    def below(room: str) -> set[str]:
        return {deeper for each in imports[room] for deeper in {each} | below(each)}

    return {
        room: {each for each in found if all(each not in below(o) for o in found)} for room, found in imports.items()
    }


def rooms() -> Pen:
    """One box a room, in layers; an arrow to each room that it imports, without those reached by another arrow."""
    layers = sorted(room_layers(), key=lambda layer: layer != ["testing"])  # it runs commands, for tests of them
    pen = Pen(WIDTH, 24 + STEP * len(layers), "The rooms of Genus and which of them import which")
    at = {room: (_x(layer, n), 14 + STEP * row) for row, layer in enumerate(layers) for n, room in enumerate(layer)}
    for room, found in direct(room_imports()).items():
        for other in sorted(found):
            _arrow(pen, at[room], at[other], COLOURS.get(room, "blue"))
    for room, (x, y) in at.items():
        pen.box(x, y, BOX, 54, COLOURS.get(room, "blue"))
        pen.words(x + BOX / 2, y + 17, room, "strong small", at="middle")
        pen.words(x + BOX / 2, y + 32, PURPOSES[room], "tiny faint", at="middle")
        pen.words(x + BOX / 2, y + 47, "  ".join(doors(room)), "code tiny", at="middle")
    return pen


def _files(room: str) -> list[Path]:
    return sorted((SOURCE / room).rglob("*.py")) or [SOURCE / f"{room}.py"]


def _imported(file: Path) -> set[str]:
    found = set()
    for node in ast.walk(ast.parse(file.read_text())):
        if isinstance(node, ast.ImportFrom) and node.module:
            names = [f"genus.{alias.name}" for alias in node.names] if node.module == "genus" else [node.module]
        else:
            names = [alias.name for alias in node.names] if isinstance(node, ast.Import) else []
        found |= {parts[1] for name in names if (parts := name.split("."))[0] == "genus" and len(parts) > 1}
    return found


def _x(layer: list[str], number: int) -> float:
    gap = (WIDTH - BOX * len(layer)) / (len(layer) + 1)
    return gap + number * (BOX + gap)


def _arrow(pen: Pen, start: tuple[float, float], end: tuple[float, float], colour: str) -> None:
    (x, y), (to, down) = start, end
    lean = 24 if to > x else -24 if to < x else 0
    x, to = x + BOX / 2 + lean, to + BOX / 2 - lean
    pen.path(f"M{x:g} {y + 54:g}C{x:g} {y + 74:g} {to:g} {down - 24:g} {to:g} {down - 3:g}", colour, arrow=True)
