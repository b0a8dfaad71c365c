"""`genus types`, `codes` and `records`: the types of a module, what their codes cost, types for foreign records."""

import json
from collections.abc import Collection, Iterable, Iterator, Sequence
from dataclasses import asdict
from pathlib import Path
from typing import Any

import click
import msgspec
from rich.box import SIMPLE_HEAD
from rich.console import Console
from rich.table import Table
from rich.text import Text

from genus.catalog import Catalog
from genus.catalog.types import TypeEntry
from genus.cli._completion import complete_files
from genus.cli._events import GENUS_TYPES, ModuleOrFile, load_all
from genus.cli._groups import SectionedGroup, print_json, wide_console
from genus.codes import compare_schemes, read_hierarchy
from genus.codes.types import Block, CodeCost, NotApplicable
from genus.model import name_of, parents
from genus.model.types import Attribute


@click.command()
@click.argument(
    "sources",
    metavar="MODULE_OR_FILE...",
    type=ModuleOrFile(),
    nargs=-1,
    required=True,
    envvar=GENUS_TYPES,
    shell_complete=complete_files,
)
@click.option(
    "--catalog",
    "path",
    type=click.Path(exists=True, dir_okay=False, path_type=Path),
    help="Take codes, bits and event tags from this catalog [those of a new catalog].",
)
@click.option("--json", "as_json", is_flag=True, help="Print a JSON list of types instead of a table.")
def types(sources: tuple[str, ...], path: Path | None, as_json: bool) -> None:
    """Show the event types of a module: codes, bits, event tags.

    MODULE_OR_FILE is the dotted name of a Python module, or the path of a .py or .dbc file; GENUS_TYPES is
    taken where it is left out. No file is written.

    \b
    genus types examples/traffic.py
    """
    found = load_all(sources)
    catalog = Catalog.load(path) if path else Catalog()
    registered = set(catalog.types) if path else None
    catalog.register(*found)
    names = {name_of(cls) for cls in _with_above(found)}
    if as_json:
        click.echo(json.dumps(as_list(catalog, names), indent=2))
    else:
        show(catalog, names, registered)


def show(catalog: Catalog, names: Collection[str], registered: Collection[str] | None = None) -> None:
    """Print some types of a catalog as a tree, kinds after event types."""
    table = Table(box=SIMPLE_HEAD, padding=(0, 1), pad_edge=False)
    table.add_column("type", no_wrap=True)
    table.add_column("code", justify="right", overflow="fold")
    table.add_column("event tag", no_wrap=True)
    table.add_column(r"bit attribute: type \[unit]", overflow="fold")
    for indent, entry in _tree(catalog, names):
        is_new = registered is not None and entry.name not in registered
        label = _label(
            indent, entry, is_new, catalog.tagged_attributes(entry.name) if entry.name == entry.family else ()
        )
        table.add_row(label, str(entry.code), _tags(catalog, entry), Text(_bits(catalog, entry)))
    wide_console().print(table)
    click.echo("event tag: on CAN, with the number of leading bits that the type shares with all its subtypes")


def as_list(catalog: Catalog, names: Collection[str]) -> list[dict[str, Any]]:
    """Some types of a catalog with all their properties, for JSON."""
    return [_as_json(catalog, entry) for entry in catalog.entries.values() if entry.name in names]


def _with_above(classes: Iterable[type]) -> Iterator[type]:
    for cls in classes:
        yield cls
        yield from _with_above(parents(cls))


def _tree(catalog: Catalog, names: Collection[str]) -> Iterator[tuple[str, TypeEntry]]:
    """Types in the order of the tree, each below its first parent, with the lines drawn before its name."""
    children: dict[str | None, list[TypeEntry]] = {}
    for entry in catalog.entries.values():
        if entry.name in names:
            children.setdefault(entry.parents[0] if entry.parents else None, []).append(entry)
    roots = sorted(children.pop(None, []), key=lambda entry: entry.kind)
    stack = [("", "", entry) for entry in reversed(roots)]
    while stack:
        lead, indent, entry = stack.pop()
        yield lead, entry
        below = children.get(entry.name, [])
        for child in reversed(below):
            lead, rest = ("└ ", "  ") if child is below[-1] else ("├ ", "│ ")
            stack.append((indent + lead, indent + rest, child))


def _label(indent: str, entry: TypeEntry, is_new: bool, tagged: tuple[str, ...]) -> Text:
    label = Text.assemble((indent, "dim"), (entry.name, "italic" if entry.kind else "bold"))
    kinds = entry.parents[1:]
    label.append(" (kind)" if entry.kind else f" ({', '.join(kinds)})" if kinds else "", "dim")
    label.append(f" tagged {', '.join(tagged)}" if tagged else "", "dim")
    if is_new:
        label.append(" not registered", "yellow")
    if entry.deprecated is not None:
        label.append(f" {_deprecated(entry.deprecated)}", "red")
    return label


def _tags(catalog: Catalog, entry: TypeEntry) -> str:
    """Each filter as value/number of leading bits compared, of 14; a type that no CAN bus asked for may have none."""
    return "\n".join(f"{block.value:#06x}/{block.mask.bit_count()}" for block in _filters(catalog, entry))


def _filters(catalog: Catalog, entry: TypeEntry) -> tuple[Block, ...]:
    """Return the filters of a kind, or of a type that has an event tag by now."""
    return catalog.filters(entry.name) if entry.kind or entry.blocks else ()


def _bits(catalog: Catalog, entry: TypeEntry) -> str:
    return ", ".join(f"{bit} {attribute}{_notes(attribute)}" for bit, attribute in _attributes(catalog, entry))


def _notes(attribute: Attribute) -> str:
    unit = "" if attribute.unit is None else f" [{attribute.unit}]"
    former = f" (was {', '.join(attribute.former)})" if attribute.former else ""
    return unit + former + ("" if attribute.deprecated is None else f" ({_deprecated(attribute.deprecated)})")


def _deprecated(note: str) -> str:
    return f"deprecated: {note}" if note else "deprecated"


def _attributes(catalog: Catalog, entry: TypeEntry) -> list[tuple[int, Attribute]]:
    """Return the attributes that a type itself declares, with their bits in the family's vector."""
    own = entry.attributes
    among = enumerate(catalog.vector(entry.name))
    return [(bit, msgspec.structs.replace(a, optional=not own[a.name])) for bit, a in among if a.name in own]


def _as_json(catalog: Catalog, entry: TypeEntry) -> dict[str, Any]:
    return {
        "name": entry.name,
        "parents": list(entry.parents),
        "kind": entry.kind,
        "family": entry.family,
        "code": str(entry.code),
        "etag": catalog.etag(entry.name) if entry.blocks else None,
        "tagged": list(catalog.tagged_attributes(entry.name)),
        "filters": [[block.value, block.mask] for block in _filters(catalog, entry)],
        "attributes": [
            {"name": a.name, "bit": bit, "type": a.type.describe(), "required": not a.optional, "unit": a.unit}
            | ({"names": list(a.names)} if a.names else {})
            | ({} if a.deprecated is None else {"deprecated": a.deprecated})
            for bit, a in _attributes(catalog, entry)
        ],
        "deprecated": entry.deprecated,
    }


@click.command()
@click.argument("source", metavar="MODULE_OR_FILE", type=ModuleOrFile(), shell_complete=complete_files)
@click.option("--json", "as_json", is_flag=True, help="Print JSON instead of a table.")
def codes(source: str, as_json: bool) -> None:
    """Compare the sizes of prime codes, per scheme.

    MODULE_OR_FILE is a CSV file (type,parents; or VSS), a .py file or the name of a Python module.

    \b
    genus codes examples/traffic.py
    """
    with Console(stderr=True).status("computing codes"):
        lines = compare_schemes(read_hierarchy(source))
    if as_json:
        print_json({"table": [asdict(line) for line in lines]})
    else:
        wide_console().print(_table(source, lines))


def _table(source: str, lines: Sequence[CodeCost | NotApplicable]) -> Table:
    table = Table(title=f"Codes of {source}", title_justify="left", box=SIMPLE_HEAD, padding=(0, 0), pad_edge=False)
    table.add_column("scheme", no_wrap=True)
    for heading in ("types", "primes", "largest code", "mean bytes", "max bytes", "density"):
        table.add_column(heading, justify="right", no_wrap=heading in {"primes", "largest code", "density"})
    for line in lines:
        table.add_row(line.scheme, *_values(line))
    return table


def _values(line: CodeCost | NotApplicable) -> tuple[str, ...]:
    if isinstance(line, NotApplicable):
        return ("", "", f"n/a: {line.reason}")
    largest = str(line.largest) if line.max_bytes <= 5 else f"{line.largest.bit_length()} bits"
    sizes = f"{line.mean_bytes:.2f}", str(line.max_bytes)
    return str(line.vertices), str(line.primes), largest, *sizes, f"{line.density_percent:.2g}%"


@click.group(cls=SectionedGroup)
def records() -> None:
    """Make event types and mapping files for records of other systems."""


@records.command()
@click.argument("path", metavar="FILE", type=click.Path(exists=True, dir_okay=False, path_type=Path))
@click.option(
    "--python",
    "types",
    metavar="FILE",
    type=click.Path(dir_okay=False, path_type=Path),
    help="Write the event types to this .py file.",
)
@click.option(
    "--write-mapping",
    "mapping",
    type=click.Path(dir_okay=False, path_type=Path),
    metavar="FILE",
    help="Write the mapping to this file.",
)
def infer(path: Path, types: Path | None, mapping: Path | None) -> None:
    """Make event types and a mapping of captured births of Sparkplug.

    FILE has a topic and a payload in hexadecimal digits on each line, as `mosquitto_sub -t 'spBv1.0/#' -F '%t %x'`
    prints them. What is not written to files is printed. What could not be read is said on standard error.

    \b
    genus records infer births.txt
    genus records infer births.txt --python plant.py --write-mapping plant.toml
    """
    from genus.net import infer_sparkplug

    with path.open(encoding="utf-8", errors="replace") as lines:
        found = infer_sparkplug(lines)
    if not found.mapping:
        raise click.ClickException(f"{path} has no birth with metrics")
    for to, text in ((types, found.types), (mapping, found.mapping)):
        if to is None:
            click.echo(text)
        else:
            to.write_text(text, encoding="utf-8")
    for problem in found.problems:
        click.echo(f"not read: {problem}", err=True)
