"""`genus catalog`: look at catalog files, add to them, and find out what would be refused."""

import json
import sys
from collections.abc import Iterable
from pathlib import Path

import click

from genus.catalog import Catalog, Finding
from genus.cli.loading import load_all
from genus.cli.types import as_list, show

EXISTING = click.Path(exists=True, dir_okay=False, path_type=Path)
MODULES = click.argument("sources", metavar="MODULE...", nargs=-1, required=True)


@click.group()
def catalog() -> None:
    """Catalog files: the codes, bits and event tags a system agrees on."""


@catalog.command("show")
@click.argument("path", metavar="FILE", type=EXISTING)
@click.option("--json", "as_json", is_flag=True, help="Print JSON instead of a table.")
def show_command(path: Path, as_json: bool) -> None:
    """Show all types of a catalog with their codes, bits and event tags."""
    found = Catalog.load(path)
    if as_json:
        click.echo(json.dumps(as_list(found, found.types), indent=2))
    else:
        show(found, found.types)


@catalog.command("register")
@click.argument("path", metavar="FILE", type=click.Path(dir_okay=False, path_type=Path))
@MODULES
@click.option("--dry-run", is_flag=True, help="Only say what would be added.")
def register_command(path: Path, sources: tuple[str, ...], dry_run: bool) -> None:
    """Add the event types of modules to a catalog file, all or none; the file is made if there is none."""
    types = load_all(sources)
    if dry_run:
        findings = (Catalog.load(path) if path.exists() else Catalog()).check(*types)
        _print([str(finding).replace("added:", "would add:", 1) for finding in findings], "nothing to add")
        sys.exit(_is_refused(findings))
    findings = list(Catalog.update(path, *types)[1].findings())
    _print(findings, "nothing to add")
    sys.exit(_is_refused(findings))


@catalog.command("check")
@click.argument("path", metavar="FILE", type=EXISTING)
@MODULES
def check_command(path: Path, sources: tuple[str, ...]) -> None:
    """Compare the event types of modules with a catalog; exit code 1 if they are refused or not all registered."""
    findings = Catalog.load(path).check(*load_all(sources))
    _print([_unregistered(finding) for finding in findings], "all registered")
    sys.exit(any(finding.status != "kept" for finding in findings))


@catalog.command("diff")
@click.argument("old", metavar="OLD", type=EXISTING)
@click.argument("new", metavar="NEW", type=EXISTING)
def diff_command(old: Path, new: Path) -> None:
    """Say what NEW has that OLD has not, and the other way round; exit code 1 if NEW does not extend OLD."""
    before, after = Catalog.load(old), Catalog.load(new)
    _print(before.diff(after), "no difference")
    sys.exit(not after.extends(before))


@catalog.command("deprecate")
@click.argument("path", metavar="FILE", type=EXISTING)
@click.argument("type_", metavar="TYPE")
@click.option("--note", help="Why, or what to use instead.")
def deprecate_command(path: Path, type_: str, note: str | None) -> None:
    """Mark a type as not to be used any more; its numbers stay, and nothing can be derived from it."""
    with Catalog.editing(path) as found:
        found.deprecate(type_, note)
    click.echo(f"deprecated: {type_}")


def _unregistered(finding: Finding) -> str:
    return str(finding).replace("added:", "not registered:", 1)


def _is_refused(findings: Iterable[Finding]) -> bool:
    return any(finding.status == "refused" for finding in findings)


def _print(lines: Iterable[object], otherwise: str) -> None:
    click.echo("\n".join(map(str, lines)) or otherwise)
