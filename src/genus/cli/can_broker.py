"""`genus can broker`: the service that a live bus needs once."""

import math
import threading
import time
from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING

import click

from genus.can.live.address import CanAddress
from genus.catalog import Catalog
from genus.catalog.store import locked, real_path
from genus.cli.can_bus import ADDRESS, can_address, say
from genus.cli.spans import FOR
from genus.cli.stopping import stopped_by_signals
from genus.errors import GenusError

if TYPE_CHECKING:
    from genus.can.live.host import LiveHost
    from genus.can.protocol.broker import Broker

TICK_S = 0.2
"""So often it is looked whether to stop, and whether the catalog changed."""


@click.command()
@ADDRESS
@click.option(
    "--catalog",
    required=True,
    type=click.Path(dir_okay=False, path_type=Path),
    help="The catalog to bind by; read again when it grows.",
)
@click.option(
    "--tables",
    required=True,
    type=click.Path(dir_okay=False, path_type=Path),
    help="Where node numbers and channel classes are kept; created if it does not exist.",
)
@click.option("--standby", is_flag=True, help="Listen, and take over when the broker falls silent.")
@FOR
def broker(address: str, catalog: Path, tables: Path, standby: bool, lasts: float | None) -> None:
    """Give nodes their numbers and channels their event tags.

    It answers questions about the catalog, too.

    \b
    genus catalog register city.json examples/traffic.py
    genus can broker can:udp_multicast --catalog city.json --tables broker.json
    """
    where = can_address(address)
    read = Catalog.load(catalog)
    with locked(real_path(tables), 0.5):
        _run_broker(where, read, catalog, tables, standby, lasts)


def _run_broker(
    where: CanAddress, read: Catalog, catalog: Path, tables: Path, standby: bool, lasts: float | None
) -> None:
    from genus.can.live.link import open_host  # python-can is an extra
    from genus.can.protocol.broker import Broker
    from genus.can.protocol.tables import FileStore

    machine = Broker(where.uid, read, FileStore(tables), standby=standby, fd=where.fd, tell=_say_standing)
    click.echo(f"broker of {len(read.types)} types on can:{where.interface}, uid {where.uid:016x}", err=True)
    with stopped_by_signals() as stop:
        host = open_host(machine, where)
        _follow(catalog, stop, lasts, lambda: _renew(host, machine, catalog))
        host.call(lambda now: machine.close())
        host.close()
    click.echo(f"nodes known: {len(machine.numbers)}, channels announced: {len(machine.channels)}", err=True)


def _follow(catalog: Path, stop: threading.Event, lasts: float | None, renew: Callable[[], object]) -> None:
    """Until it is told to stop or its time is over; a catalog that changes is taken over."""
    seen = _changed_at(catalog)
    ends = math.inf if lasts is None else time.monotonic() + lasts
    while (left := ends - time.monotonic()) > 0 and not stop.wait(min(TICK_S, left)):
        changed = _changed_at(catalog)
        if changed is not None and changed != seen:
            seen = changed
            renew()


def _say_standing(notice: object) -> None:
    from genus.can.protocol.notices import Standing

    if isinstance(notice, Standing):
        other = f" of {notice.other:016x}" if notice.other else ""
        click.echo("serving this bus" if notice.active else f"standby{other}", err=True)
    else:
        say(notice)


def _changed_at(path: Path) -> int | None:
    try:
        return path.stat().st_mtime_ns
    except OSError:
        return None


def _renew(host: "LiveHost", machine: "Broker", path: Path) -> None:
    """Bind by the catalog as it is now; one that cannot be read is said, and the old one stays."""
    try:
        read = Catalog.load(path)
    except (GenusError, OSError) as problem:
        click.echo(f"genus: {problem}", err=True)
        return
    host.call(lambda now: machine.use(read))
    click.echo(f"catalog read again: {len(read.types)} types", err=True)
