"""`genus studio`: a live page on buses, simulations, recordings, lakes and gateways."""

from contextlib import ExitStack
from pathlib import Path

import click

from genus.bus import shown_address
from genus.cli._completion import complete_bus
from genus.cli._events import BUS_TYPES, load_all, load_types
from genus.cli._exit import stopped_by_signals
from genus.cli._format import FOR

PORT = 8420
FILE = click.Path(exists=True, dir_okay=False, path_type=Path)


@click.command()
@BUS_TYPES
@click.argument("addresses", metavar="ADDRESS...", nargs=-1, required=True, shell_complete=complete_bus)
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
    "--access-token", "token", metavar="TEXT", help="What the first request must carry [made where others can connect]."
)
@click.option("--allow-host", "hosts", multiple=True, metavar="NAME", help="A further name by which pages come here.")
@click.option("--allow-publish", is_flag=True, help="Let the page publish events.")
@click.option(
    "--watch", default="Event", show_default=True, metavar="SUBSCRIPTION", help="On networks: what to ask for."
)
@click.option("--catalog", type=FILE, help="Show codes, bits and event tags of this catalog, and its changes.")
@click.option("--docs", default="", metavar="URL", help="Where the documentation is, for links.")
@click.option("--open", "opens", is_flag=True, help="Open the page in the browser.")
@FOR
def studio(
    types: tuple[str, ...],
    addresses: tuple[str, ...],
    port: int,
    host: str,
    cert: Path | None,
    key: Path | None,
    token: str | None,
    hosts: tuple[str, ...],
    allow_publish: bool,
    watch: str,
    catalog: Path | None,
    docs: str,
    opens: bool,
    lasts: float | None,
) -> None:
    """Show buses, simulations, recordings and lakes in the browser.

    ADDRESS is that of a bus (ipc:city, zenoh:, mqtt://HOST, can:...), a simulation (sim:traffic, sim:crossing.toml, or
    sim:FOLDER of `genus demo traffic`), or the path of a recording, a CAN trace, a lake or a gateway file. Several are
    shown on one page. Ctrl-C ends it.

    \b
    genus studio sim:traffic
    genus studio -t examples/traffic.py ipc:city
    genus studio -t examples/traffic.py recording.genus lake/
    """
    from genus.studio import open_source, open_studio

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
            port=port,
            host=host,
            cert=cert,
            key=key,
            token=token,
            hosts=hosts,
            allow_publish=allow_publish,
            catalog=catalog,
            docs=docs,
            title=", ".join(map(shown_address, addresses)),
        )
        stack.callback(page.close)
        click.echo(f"Studio: {page.url}", err=True)
        if opens:
            click.launch(page.url)
        stop.wait(lasts)
