"""`genus catalog`: look at catalog files, add to them, and find out what would be refused."""

import sys
from pathlib import Path

import click

from genus.catalog import Catalog
from genus.catalog.types import Finding
from genus.cli._completion import complete_catalog_types, complete_files
from genus.cli._events import ModuleOrFile, load_all
from genus.cli._groups import SectionedGroup, meant, print_json
from genus.cli._types import as_list, show
from genus.filters import Subscription, read_subscriptions
from genus.filters.types import AttributeRef
from genus.model import name_of

EXISTING = click.Path(exists=True, dir_okay=False, path_type=Path)
MODULES = click.argument(
    "sources",
    metavar="MODULE_OR_FILE...",
    type=ModuleOrFile(),
    nargs=-1,
    required=True,
    shell_complete=complete_files,
)
FINDINGS = click.option("--json", "as_json", is_flag=True, help="Print a JSON list of findings instead of lines.")


@click.group(cls=SectionedGroup)
def catalog() -> None:
    """Keep the codes, bits and event tags that a system shares.

    FILE is a catalog: a JSON file that only grows. MODULE_OR_FILE is the dotted name of a Python module, or the path of
    a .py or .dbc file.
    """


@catalog.command("register")
@click.argument("path", metavar="FILE", type=click.Path(dir_okay=False, path_type=Path))
@MODULES
@click.option("--dry-run", is_flag=True, help="Only show what would be added.")
@FINDINGS
def register_command(path: Path, sources: tuple[str, ...], dry_run: bool, as_json: bool) -> None:
    """Add the event types of modules to a catalog, all or none.

    The file is made if there is none. Exit code 1 if a type is refused.

    \b
    genus catalog register city.json examples/traffic.py
    """
    types = load_all(sources)
    if dry_run:
        findings = list((Catalog.load(path) if path.exists() else Catalog()).check(*types))
    else:
        findings = list(Catalog.update(path, *types)[1].findings())
    _say(findings, as_json, "nothing to add", "would add" if dry_run else "added")
    sys.exit(any(finding.status == "refused" for finding in findings))


@catalog.command("show")
@click.argument("path", metavar="FILE", type=EXISTING)
@click.option("--json", "as_json", is_flag=True, help="Print a JSON list of types instead of a table.")
def show_command(path: Path, as_json: bool) -> None:
    """Show all types of a catalog: codes, bits, event tags.

    \b
    genus catalog show city.json
    """
    found = Catalog.load(path)
    if as_json:
        print_json(as_list(found, found.types))
    else:
        show(found, found.types)


@catalog.command("check")
@click.argument("path", metavar="FILE", type=EXISTING)
@MODULES
@click.option(
    "--subscriptions",
    "files",
    metavar="FILE",
    multiple=True,
    type=EXISTING,
    help="Say which of these subscriptions use what is deprecated; may be repeated.",
)
@FINDINGS
def check_command(path: Path, sources: tuple[str, ...], files: tuple[Path, ...], as_json: bool) -> None:
    """Compare the event types of modules with a catalog.

    Also says which of them, and which subscriptions of files, use what is deprecated. Exit code 1 if types are refused
    or not all registered.

    \b
    genus catalog check city.json examples/traffic.py
    """
    found, types = Catalog.load(path), load_all(sources)
    findings = list(found.check(*types))
    for file in files:
        for subscriber, asked in read_subscriptions(file, lambda text: Subscription.parse(text, types)):
            findings += _uses(found, f"{file}: {subscriber}", asked)
    _say(findings, as_json, "all registered", "not registered")
    sys.exit(any(finding.status not in ("kept", "deprecated") for finding in findings))


def _uses(catalog: Catalog, who: str, asked: Subscription) -> list[Finding]:
    """Return what a subscription uses that is deprecated."""
    tested = [] if asked.where is None else [each.name for each in asked.where.walk() if isinstance(each, AttributeRef)]
    used = [f"{asked.vector.scope}.{name}" for name in dict.fromkeys((*asked.has, *asked.lacks, *tested))]
    notes = {name: catalog.deprecated.get(name) for name in (*map(name_of, asked.types), *used)}
    return [
        Finding("deprecated", name, f"is used by {who}" + (f"; {note}" if note else ""))
        for name, note in notes.items()
        if note is not None
    ]


@catalog.command("diff")
@click.argument("old", metavar="OLD", type=EXISTING)
@click.argument("new", metavar="NEW", type=EXISTING)
@click.option("--json", "as_json", is_flag=True, help="Print JSON instead of lines.")
def diff_command(old: Path, new: Path, as_json: bool) -> None:
    """Say what NEW has that OLD has not, and the other way round.

    Exit code 1 if NEW does not extend OLD.

    \b
    genus catalog diff city.json city-later.json
    """
    before, after = Catalog.load(old), Catalog.load(new)
    differences, extends = list(map(str, before.diff(after))), after.extends(before)
    if as_json:
        print_json({"extends": extends, "differences": differences})
    else:
        click.echo("\n".join(differences) or "no difference")
    sys.exit(not extends)


@catalog.command("deprecate")
@click.argument("path", metavar="FILE", type=EXISTING)
@click.argument("type_", metavar="TYPE", shell_complete=complete_catalog_types)
@click.argument("attribute", metavar="[ATTRIBUTE]", required=False)
@click.option("--note", metavar="TEXT", help="Why, or what to use instead.")
def deprecate_command(path: Path, type_: str, attribute: str | None, note: str | None) -> None:
    """Mark a type, or an attribute of it, as not to be used any more.

    Numbers and bits stay; no new type can be derived from the type or declare the attribute.

    \b
    genus catalog deprecate city.json Loop --note "use Detector"
    genus catalog deprecate city.json Loop speed --note "use velocity"
    """
    with Catalog.editing(path) as found:
        if type_ not in found.types:
            raise click.ClickException(f"{path} has no type {type_}; {meant(type_, found.types)}")
        found.deprecate(type_, note, attribute=attribute)
    click.echo(f"deprecated: {type_}{f'.{attribute}' if attribute else ''}")


@catalog.command("etags")
@click.argument("path", metavar="FILE", type=EXISTING)
@click.argument("types", metavar="TYPE...", nargs=-1, required=True, shell_complete=complete_catalog_types)
def etags_command(path: Path, types: tuple[str, ...]) -> None:
    """Give event tags to types that have none yet, for a CAN bus.

    Registering gives them while there are plenty, and a bus asks for those it needs. This is for filters of controllers
    that are made beforehand. What was given never changes.

    \b
    genus catalog etags city.json Loop Lamp
    """
    found, given = Catalog.update_etags(path, *types)
    for name in types:
        mark = " (new)" if name in given else ""
        click.echo(f"{name}: {found.etag(name):#06x}{mark}" if found.has_etag(name) else f"{name}: a kind has none")


def _say(findings: list[Finding], as_json: bool, otherwise: str, added: str) -> None:
    """Each finding in a line; one that is called `added` may not have been yet."""
    if as_json:
        print_json(findings)
    else:
        lines = [str(finding).replace("added:", f"{added}:", 1) for finding in findings]
        click.echo("\n".join(lines) or otherwise)
