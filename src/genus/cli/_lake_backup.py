"""`genus lake backup`: a copy of a lake, of inboxes or of a derived table, made while they are in use."""

import click
from rich.console import Console
from rich.progress import Progress

from genus.cli._exit import saying_what_is_kept
from genus.cli._format import counted, print_json, sized
from genus.cli._lake_session import AS_JSON, lake_and


@click.command()
@lake_and("TARGET")
@AS_JSON
def backup(given: tuple[str, str], as_json: bool) -> None:
    """Copy a lake into another folder while it is in use.

    TARGET is a new folder, or one with an earlier backup, to which what is new is added. LAKE may also be the folder of
    inboxes or of a derived table. Both are local; no Spark is needed.

    \b
    genus lake backup city /backup/city
    """
    from genus.lake import backup as copy

    path, target = given
    console = Console(stderr=True)
    with (
        saying_what_is_kept(lambda: "files that were copied stay; the same command does the rest"),
        Progress(console=console, transient=True, disable=not console.is_terminal) as progress,
    ):
        task = progress.add_task("copying", total=None)
        done = copy(path, target, progress=lambda done, total: progress.update(task, completed=done, total=total))
    if as_json:
        print_json(done)
        return
    what = f"{counted(done.copied, 'file')} of {done.files:,} copied, {sized(done.bytes)}, {done.seconds:.1f} s"
    click.echo(f"{target} has version {done.version}: {what}")
