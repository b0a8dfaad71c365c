"""`genus gateway` and `grants`: carry events between buses; say who may publish and subscribe what."""

import math
import sys
import threading
import time
from collections.abc import Callable, Iterable, Iterator
from contextlib import ExitStack, nullcontext
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click
import msgspec
from rich.console import Group
from rich.live import Live
from rich.table import Table
from rich.text import Text

from genus.catalog import Catalog
from genus.cli._completion import quietly
from genus.cli._events import GENUS_TYPES, complete_types, event_type, load_all, load_types, types_option
from genus.cli._exit import stopped_by_signals
from genus.cli._groups import FOR, METRICS, SectionedGroup, counted, plain_table, print_json, serve, wide_console
from genus.filters import Subscription
from genus.model import Event
from genus.net import read_grants
from genus.net.types import Allowed, Grants, Refusal

if TYPE_CHECKING:
    from genus.net import Gateway
    from genus.net.types import GatewayFile, GatewayStatus

REFRESH_S = 0.5
PLAIN_S = 10.0
"""How often the table is printed where it cannot be drawn again in place."""
COLUMNS = ("asked", "heard", "wanted", "crossed", "unwanted", "duplicates", "lost", "spooled", "limited")


@click.command()
@click.argument("file", type=click.Path(exists=True, dir_okay=False, path_type=Path))
@click.option("--check", is_flag=True, help="Read the file, say what is wrong, and open no bus.")
@FOR
@click.option("--json", "as_json", is_flag=True, help="No table; one JSON document at the end.")
@METRICS
def gateway(file: Path, check: bool, lasts: float | None, as_json: bool, metrics: str | None) -> None:
    """Carry events between buses, those that somebody wants.

    FILE names the buses and what may cross; see the guide on gateways. The table shows per side what it wanted and what
    was sent to it. Ctrl-C ends it.

    \b
    genus gateway city.toml
    genus gateway --check city.toml
    """
    from genus.net import load_gateway

    if check and as_json:
        raise click.UsageError("--json is for what crossed; leave it out with --check, which prints text")
    loaded = load_gateway(file, load_types)
    if check:
        click.echo(_described(loaded))
        return
    with stopped_by_signals() as stop, ExitStack() as stack:
        running = stack.enter_context(loaded.open())
        serve(stack, running, metrics)
        click.echo(f"gateway between {', '.join(side.address for side in loaded.sides)}", err=True)
        _watch(running, stop, lasts, shows_table=not as_json)
        status = running.status()
    if as_json:
        print_json(msgspec.to_builtins(status))
    else:
        wide_console().print(_table(status))


def _described(loaded: "GatewayFile") -> str:
    sides = "; ".join(f"{side.name} ({side.address})" for side in loaded.sides)
    doubled = f", doubled as {loaded.name}" if loaded.name else ""
    return f"{loaded.path}: {len(loaded.types)} types, {len(loaded.sides)} sides{doubled}: {sides}"


def _watch(running: "Gateway", stop: threading.Event, lasts: float | None, *, shows_table: bool) -> None:
    """Wait until the command is to end; draw the table again and again, or print it now and then."""
    ends = math.inf if lasts is None else time.monotonic() + lasts
    console = wide_console()
    is_live = shows_table and console.is_terminal
    shown = Live(console=console, auto_refresh=False, transient=True) if is_live else None
    printed_at = time.monotonic()
    with shown or nullcontext():
        while (left := ends - time.monotonic()) > 0 and not stop.wait(min(REFRESH_S, left)):
            if shown is not None:
                shown.update(_table(running.status()), refresh=True)
            elif shows_table and time.monotonic() - printed_at >= PLAIN_S:
                printed_at = time.monotonic()
                click.echo(_line(running.status()))


def _table(status: "GatewayStatus") -> Group | Table:
    table = plain_table("side", *COLUMNS, numbers=COLUMNS)
    for side in status.sides:
        table.add_row(side.name, *(f"{getattr(side, column):,}" for column in COLUMNS))
    notes = [Text(note) for note in _notes(status)]
    return Group(table, *notes) if notes else table


def _notes(status: "GatewayStatus") -> Iterator[str]:
    """Yield what the numbers of the table do not say."""
    if not status.is_active:
        yield f"standing by; {counted(status.held, 'event')} not seen to cross yet"
    for side in status.sides:
        if not side.is_connected:
            yield f"{side.name} is not connected"
        if side.waiting:
            yield f"{side.name}: {counted(side.waiting, 'event')} waiting"
        if side.refused:
            yield f"{side.name}: {counted(side.refused, 'subscription')} only for what the scopes keep back"


def _line(status: "GatewayStatus") -> str:
    """Return the counters that are not zero, as one line."""
    sides = []
    for side in status.sides:
        counts = ", ".join(f"{getattr(side, column):,} {column}" for column in COLUMNS if getattr(side, column))
        sides.append(f"{side.name}: {counts or 'nothing yet'}")
    return "; ".join([*sides, *_notes(status)])


FILE = click.argument("path", metavar="FILE", type=click.Path(exists=True, dir_okay=False, path_type=Path))
REALM = click.option(
    "--realm", default="genus", show_default=True, metavar="NAME", help="The realm of the buses, as in their addresses."
)


def _types(command: Callable[..., Any]) -> Callable[..., Any]:
    """Return the options that say which types there are."""
    catalog = click.option(
        "--catalog",
        type=click.Path(exists=True, dir_okay=False, path_type=Path),
        help="Take the types of this catalog instead.",
    )
    return types_option(required=False)(catalog(command))


@click.group(cls=SectionedGroup)
def grants() -> None:
    """Say who may publish and subscribe which types.

    FILE is a TOML file with [roles.NAME] and [users.NAME]: lists `publish` and `subscribe` of types, those below them
    included. What is not granted is denied.
    """


@quietly
def _complete_users(ctx: click.Context) -> list[str]:
    return sorted(read_grants(ctx.params["path"]).users)


@grants.command("check")
@FILE
@_types
@click.option("--user", metavar="NAME", shell_complete=_complete_users, help="Only what this user may do.")
@click.option("--subscribe", metavar="SUBSCRIPTION", shell_complete=complete_types, help="May USER subscribe to this?")
@click.option("--publish", metavar="TYPE", shell_complete=complete_types, help="May USER publish this?")
@click.option("--realm", metavar="NAME", help="Only what holds in this realm.")
@click.option("--json", "as_json", is_flag=True, help="Print a JSON document instead of a table.")
def check(
    path: Path,
    types: tuple[str, ...],
    catalog: Path | None,
    user: str | None,
    subscribe: str | None,
    publish: str | None,
    realm: str | None,
    as_json: bool,
) -> None:
    """Check a grants file, and show what it grants.

    With --subscribe or --publish, exit code 1 if that is refused; the reason is printed.

    \b
    genus grants check examples/grants.toml -t examples/traffic.py
    genus grants check examples/grants.toml -t examples/traffic.py --user gate-7 --publish Loop
    """
    classes = _classes(types, catalog)
    found = read_grants(path, classes)
    found = found if realm is None else found.within(realm)
    if user is not None and user not in found.users:
        found.permit(user, realm or "")
    if subscribe is None and publish is None:
        _show(found, [user] if user is not None else sorted(found.users), as_json)
        return
    if user is None:
        raise click.UsageError("--subscribe and --publish go with --user")
    sys.exit(_ask(found, user, classes, subscribe, publish, as_json))


def _ask(
    found: Grants, user: str, classes: list[type], subscribe: str | None, publish: str | None, as_json: bool
) -> int:
    """Print what is allowed and what is refused; 1 if anything is."""
    answers: list[tuple[str, str, Allowed | Refusal]] = []
    if publish is not None:
        answers.append(("publish", publish, found.may_publish(user, event_type(publish, [*classes, Event]))))
    if subscribe is not None:
        asked = Subscription.parse(subscribe, [*classes, Event])
        answers.append(("subscribe", str(asked), found.may_subscribe(user, asked)))
    if as_json:
        print_json({"file": found.source, "user": user, "answers": [_answer_as_json(*each) for each in answers]})
    else:
        click.echo("\n".join(_answer_as_text(user, *each) for each in answers))
    return int(any(isinstance(answer, Refusal) for *_, answer in answers))


def _answer_as_json(action: str, what: str, answer: Allowed | Refusal) -> dict[str, Any]:
    why = {"reason": answer.reason} if isinstance(answer, Refusal) else {"by": list(map(str, answer.by))}
    return {"action": action, "what": what, "granted": not isinstance(answer, Refusal), **why}


def _answer_as_text(user: str, action: str, what: str, answer: Allowed | Refusal) -> str:
    if isinstance(answer, Refusal):
        return answer.reason
    asked = f"subscribe to {what}" if action == "subscribe" else f"{action} {what}"
    return f"{user} may {asked}: {', '.join(map(str, answer.by))}"


def _show(found: Grants, users: Iterable[str], as_json: bool) -> None:
    rows = {user: _granted(found, user) for user in users}
    if as_json:
        print_json({"file": found.source, "users": rows})
        return

    table = plain_table("user", "may publish", "may subscribe to", "gateway")
    for user, granted in rows.items():
        types = (", ".join(granted[action]) or "-" for action in ("publish", "subscribe"))
        table.add_row(user, *types, "yes" if granted["gateway"] else "-")
    wide_console().print(table)
    click.echo(f"{found.source}: {counted(len(rows), 'user')}", err=True)


def _granted(found: Grants, user: str) -> dict[str, Any]:
    grants_of = found.users[user]
    types = {
        action: list(dict.fromkeys(str(grant) for grant in grants_of if grant.action == action))
        for action in ("publish", "subscribe")
    }
    return types | {"gateway": bool(found.may_be_gateway(user))}


@grants.command("zenoh")
@FILE
@_types
@REALM
@click.option(
    "--by",
    type=click.Choice(["certificate", "user"]),
    default="certificate",
    show_default=True,
    help="What the router knows users by: the common name of their certificates, or a user name.",
)
def zenoh_command(path: Path, types: tuple[str, ...], catalog: Path | None, realm: str, by: Any) -> None:
    """Print the access rules of a zenoh router.

    They are the section access_control of its configuration, as JSON. Make them again when a kind gets new types.

    \b
    genus grants zenoh examples/grants.toml -t examples/traffic.py --realm city
    """
    print_json({"access_control": read_grants(path, _classes(types, catalog)).zenoh_acl(realm, by)})


@grants.command("mosquitto")
@FILE
@_types
@REALM
def mosquitto_command(path: Path, types: tuple[str, ...], catalog: Path | None, realm: str) -> None:
    """Print the access list of an MQTT broker.

    It has the form of mosquitto's acl_file. Make it again when a kind gets new types. Users are known by their names at
    the broker; with certificates, set use_identity_as_username.

    \b
    genus grants mosquitto examples/grants.toml -t examples/traffic.py --realm city
    """
    click.echo(read_grants(path, _classes(types, catalog)).mosquitto_acl(realm), nl=False)


def _classes(types: tuple[str, ...], catalog: Path | None) -> list[type]:
    """Return the classes of modules or of a catalog; UsageError if neither is given."""
    if catalog is not None:
        known = Catalog.load(catalog)
        return [known.declare(name, generated=True) for name in known.types]  # whatever else this process has
    if not types:
        raise click.UsageError(
            f"say which types there are: --types MODULE_OR_FILE (or {GENUS_TYPES}), or --catalog FILE"
        )
    return load_all(types)
