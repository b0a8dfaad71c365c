"""`genus studio`: a live page on buses, simulations, recordings, lakes and gateways."""

from contextlib import ExitStack
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click
import msgspec

from genus.bus import shown_address
from genus.cli._completion import complete_bus
from genus.cli._events import BUS_TYPES, load_all, load_types
from genus.cli._exit import stopped_by_signals
from genus.cli._groups import FOR

if TYPE_CHECKING:
    from genus.studio.types import Layout

PORT = 8420
FILE = click.Path(exists=True, dir_okay=False, path_type=Path)
TOKEN = "GENUS_STUDIO_TOKEN"


def _take_layout(context: click.Context, option: click.Parameter, path: Path | None) -> "Layout":
    """Read the layout first: what it says is the default of the other options."""
    from genus.studio import load_layout
    from genus.studio.types import Layout

    if path is None:
        return Layout()
    layout = load_layout(path)
    names = {"allow_hosts": "hosts"}
    given: dict[str, Any] = {names.get(key, key): value for key, value in layout.options.items()}
    for name in ("types", "watch", "catalog", "webhook"):
        if value := getattr(layout, name):
            given[name] = value
    context.default_map = {**(context.default_map or {}), **given}
    return layout


def _name_of(address: str) -> str:
    """Return a path by its last part, others as they are."""
    return Path(address).name if Path(address).exists() else address


def _read_token(context: click.Context, option: click.Parameter, path: Path | None) -> str | None:
    return None if path is None else path.read_text("utf-8", "replace").strip()


def _complete(
    layout: "Layout",
    addresses: tuple[str, ...],
    *,
    watch: str,
    catalog: Path | None,
    webhook: str | None,
    alerts: tuple[str, ...],
    types: tuple[str, ...],
) -> "Layout":
    """Return the layout with what the command line says; the page can save it."""
    from genus.studio.types import Alert

    return msgspec.structs.replace(
        layout,
        sources=tuple(map(shown_address, addresses)),
        types=types,
        watch="" if watch == "Event" else watch,
        catalog="" if catalog is None else str(catalog),
        webhook=webhook or "",
        alerts=(*layout.alerts, *(Alert(subscription=text) for text in alerts)),
    )


@click.command()
@BUS_TYPES
@click.argument("addresses", metavar="[ADDRESS...]", nargs=-1, shell_complete=complete_bus)
@click.option(
    "--layout",
    type=FILE,
    is_eager=True,
    callback=_take_layout,
    help="A TOML file that names sources, types, the first view, plots, alerts and options; "
    "what is on the command line comes first.",
)
@click.option(
    "--port", type=click.IntRange(0, 65535), default=PORT, show_default=True, metavar="PORT", help="0 is any free one."
)
@click.option(
    "--host",
    default="127.0.0.1",
    show_default=True,
    metavar="HOST",
    help="Others than this machine need --cert and --key.",
)
@click.option("--cert", type=FILE, help="A certificate, to serve the page over TLS.")
@click.option("--key", type=FILE, help="The private key of the certificate.")
@click.option(
    "--access-token-file",
    "file_token",
    type=FILE,
    callback=_read_token,
    help=f"A file with what the first request must carry; or set {TOKEN} [made where others can connect].",
)
@click.option(
    "--access-token", "token", envvar=TOKEN, metavar="TEXT", help="The same on the command line, where `ps` shows it."
)
@click.option("--allow-host", "hosts", multiple=True, metavar="NAME", help="A further name by which pages come here.")
@click.option("--allow-publish", is_flag=True, help="Let the page publish events.")
@click.option("--alert", "alerts", multiple=True, metavar="SUBSCRIPTION", help="Events that are a problem; repeatable.")
@click.option(
    "--webhook", metavar="URL", help="Tell this server of alerts of the command line and the layout; `ps` shows it."
)
@click.option(
    "--watch", default="Event", show_default=True, metavar="SUBSCRIPTION", help="On networks: what to ask for."
)
@click.option("--catalog", type=FILE, help="Show codes, bits and event tags of this catalog, and its changes.")
@click.option("--docs", default="", metavar="URL", help="Where the documentation is, for links.")
@click.option("--open", "opens", is_flag=True, help="Open the page in the browser.")
@FOR
@click.pass_context
def studio(
    context: click.Context,
    /,
    types: tuple[str, ...],
    addresses: tuple[str, ...],
    layout: "Layout",
    file_token: str | None,
    token: str | None,
    alerts: tuple[str, ...],
    webhook: str | None,
    watch: str,
    catalog: Path | None,
    opens: bool,
    lasts: float | None,
    **server: Any,
) -> None:
    """Show buses, simulations, recordings and lakes in the browser.

    ADDRESS is that of a bus (ipc:city, zenoh:, mqtt://HOST, can:...), a simulation (sim:traffic, sim:crossing.toml, or
    sim:FOLDER of `genus demo traffic`), or the path of a recording, a CAN trace, a lake or a gateway file. Several are
    shown on one page. Ctrl-C ends it.

    \b
    genus studio sim:traffic
    genus studio -t examples/traffic.py ipc:city
    genus studio -t examples/traffic.py recording.genus lake/
    genus studio --layout examples/studio.toml
    """
    from genus.studio import open_source, open_studio

    if not (addresses := addresses or layout.sources):
        raise click.UsageError("give an ADDRESS, or a layout with sources (--layout)")
    if context.get_parameter_source("token") is click.core.ParameterSource.COMMANDLINE:
        click.echo(f"others see --access-token in the list of processes; use --access-token-file or {TOKEN}", err=True)
    layout = _complete(layout, addresses, types=types, watch=watch, catalog=catalog, webhook=webhook, alerts=alerts)
    loaded = load_all(types)
    with stopped_by_signals() as stop, ExitStack() as stack:
        sources = []
        for address in addresses:
            opened = open_source(address, types=loaded, load=load_types, catalog=catalog, only=watch)
            for source in opened:
                stack.callback(source.close)
            sources += opened
        page = open_studio(
            *sources,
            token=token if file_token is None else file_token,  # an empty file is refused
            catalog=catalog,
            title=layout.title or ", ".join(map(_name_of, layout.sources)),
            layout=layout,
            **server,
        )
        stack.callback(page.close)
        click.echo(f"Studio: {page.url}", err=True)
        if opens:
            page.open_in_browser()
        stop.wait(lasts)
