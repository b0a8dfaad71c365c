"""Layout files: what a Studio shows, as TOML: sources, types, the first view, plots and alerts."""

import json
import os
import re
from collections.abc import Iterable, Iterator, Mapping
from datetime import UTC, datetime
from math import inf, isfinite
from pathlib import Path
from typing import Any, Literal
from urllib.parse import SplitResult, urlsplit

import msgspec

from genus._toml import TomlTable, show
from genus.errors import BusError, SyntaxProblem
from genus.filters import parse_again
from genus.model import Event

VIEWS = ("overview", "types", "channels", "subscriptions", "nodes", "gateways", "can", "events", "plot", "lake")
"""The views of the page, by their names in its address."""
MAX_PLOTS, MAX_SERIES = 20, 20
MAX_ALERTS = 50
MAX_NAME = 100
NO_TYPE = "no event type is called"
"""How a text fails that is written well: the type may come with the events of a bus."""
KEYS = ("title", "sources", "types", "watch", "catalog", "view", "sound", "webhook", "options", "plot", "alert")
OPTION_KEYS = ("port", "host", "cert", "key", "allow_hosts", "allow_publish", "docs")
PLOT_KEYS = ("name", "series", "by", "sources", "from", "to", "axes")
ALERT_KEYS = ("name", "subscription", "severity", "sources", "webhook")


class Alert(msgspec.Struct, frozen=True, kw_only=True):
    """A subscription to keep: while events match it, it is a problem.

    Args:
        subscription: Its text.
        name: What it is called; the text if empty.
        severity: How bad a match is: `warn` or `bad`.
        sources: The names of sources on the page that it is for; all if empty.
        webhook: Whether it is sent to the webhook, if there is one.
    """

    subscription: str
    name: str = ""
    severity: Literal["warn", "bad"] = "warn"
    sources: tuple[str, ...] = ()
    webhook: bool = True


class PlotLayout(msgspec.Struct, frozen=True, kw_only=True):
    """A chart of the view Plot.

    Args:
        name: What it is called.
        series: The attributes to draw, such as `Loop.speed`.
        by: What tells lines apart: `none`, `source`, `publisher`, `type` or an attribute.
        sources: The names of sources on the page; all if empty.
        from_ms: The range of time that is shown, in milliseconds since 1970, with `to_ms`; None for what comes.
        to_ms: Its end.
        axes: The lowest and highest value of axes, by unit; others fit what is drawn.
    """

    name: str = ""
    series: tuple[str, ...] = ()
    by: str = "none"
    sources: tuple[str, ...] = ()
    from_ms: float | None = None
    to_ms: float | None = None
    axes: dict[str, tuple[float, float]] = {}


class Layout(msgspec.Struct, frozen=True, kw_only=True):
    """What a Studio shows; `load_layout` reads one from a file, and the page can save one.

    Args:
        title: What the page is called.
        sources: Addresses and paths, as `genus studio` takes them.
        types: Modules and files that declare event types.
        watch: What is subscribed to on networks.
        catalog: A catalog file.
        view: The view that is shown first.
        sound: Whether alerts can be heard at first; the page has a switch.
        webhook: The address of a server that gets the alerts of this layout by POST.
        plots: Charts of the view Plot.
        alerts: What is wrong when it comes.
        options: How the page is served: port, host, cert, key, allow_hosts, allow_publish, docs.
    """

    title: str = ""
    sources: tuple[str, ...] = ()
    types: tuple[str, ...] = ()
    watch: str = ""
    catalog: str = ""
    view: str = "overview"
    sound: bool = False
    webhook: str = ""
    plots: tuple[PlotLayout, ...] = ()
    alerts: tuple[Alert, ...] = ()
    options: Mapping[str, Any] = {}


def load_layout(path: str | os.PathLike[str]) -> Layout:
    """Read and check a layout file; nothing is opened.

    Paths in it are relative to its folder.

    Raises:
        BusError: The file cannot be read, or a key or value is wrong; the message names it.
    """
    path = Path(path)
    root = TomlTable.read(path, KEYS)
    if webhook := root.text("webhook") or "":
        _checked(root, parse_url, webhook)
    return Layout(
        title=root.text("title") or "",
        sources=tuple(_beside(path, text) for text in root.texts("sources")),
        types=tuple(_beside(path, text) for text in root.texts("types")),
        watch=_subscription(root, "watch") or "",
        catalog=_beside(path, root.text("catalog") or ""),
        view=root.one_of("view", VIEWS, "overview"),
        sound=root.flag("sound", False),
        webhook=webhook,
        plots=read_plots(root),
        alerts=_alerts(root),
        options=_options(path, root),
    )


def _beside(path: Path, text: str) -> str:
    """A path that is beside the file, also one to simulate (`sim:city.toml`), or the text as it is."""
    scheme = "sim:" if text.startswith("sim:") else ""
    beside = path.parent / text.removeprefix(scheme)
    return f"{scheme}{beside}" if text and beside.exists() else text


def _checked(table: TomlTable, check: Any, value: str) -> None:
    try:
        check(value)
    except BusError as problem:
        raise BusError(f"{table.location}: {problem}") from None


def _subscription(table: TomlTable, key: str) -> str | None:
    """Return the text of a subscription that is written well; its types are looked up when the sources are open."""
    text = table.text(key)
    if text is not None:
        try:
            check_text(text)
        except SyntaxProblem as problem:
            table.refuse(key, f"is {show(text)}: column {problem.column}: {problem.reason}")
    return text


def check_text(text: str) -> None:
    """Raise SyntaxProblem if a subscription is not written well; its types are looked up when the sources are open."""
    try:
        parse_again(text, [Event])
    except SyntaxProblem as problem:
        if not problem.reason.startswith(NO_TYPE):
            raise


def parse_url(url: str) -> SplitResult:
    """Return the parts of the address of a webhook; BusError says what is wrong with it, without what may be secret."""
    try:
        found = urlsplit(url)
        found.port  # noqa: B018 - raises if it is no number
    except ValueError as problem:
        raise BusError(f"webhook is no address: {problem}") from None
    if found.scheme not in ("http", "https") or not found.hostname:
        raise BusError("webhook is no address of a server; write http://HOST/... or https://HOST/...")
    if found.username is not None or not url.isascii() or not url.isprintable() or " " in url:
        raise BusError("webhook has a user, a password or characters that an address cannot have")
    return found


def _options(path: Path, root: TomlTable) -> dict[str, Any]:
    table = TomlTable(f"{root.location}: [options]", root.entries.get("options", {}), OPTION_KEYS)
    found: dict[str, Any] = {key: table.text(key) for key in ("host", "docs") if key in table}
    found |= {key: _beside(path, table.text(key) or "") for key in ("cert", "key") if key in table}
    if "port" in table:
        found["port"] = table.integer("port", 0, 0, 65535)
    if "allow_hosts" in table:
        found["allow_hosts"] = table.texts("allow_hosts")
    if "allow_publish" in table:
        found["allow_publish"] = table.flag("allow_publish", False)
    return found


# -- plots and alerts --------------------------------------------------------------------------------------------------


def read_plots(root: TomlTable) -> tuple[PlotLayout, ...]:
    found = tuple(_plot(number, table) for number, table in enumerate(root.tables("plot", PLOT_KEYS), 1))
    _check_number(root, "plot", found, MAX_PLOTS)
    names = [plot.name for plot in found]
    if doubled := next((name for name in names if names.count(name) > 1), None):
        root.refuse("[[plot]]", f"has two that are named {doubled!r}")
    return found


def _plot(number: int, table: TomlTable) -> PlotLayout:
    series = table.texts("series")
    if not 0 < len(series) <= MAX_SERIES or not all(re.fullmatch(r"([^\s.]+\.)+\w+", each) for each in series):
        table.refuse("series", f"must be a list of 1 to {MAX_SERIES} texts TYPE.ATTRIBUTE, such as 'Loop.speed'")
    begin, end = _time_ms(table, "from"), _time_ms(table, "to")
    if (begin is None) != (end is None) or (begin is not None and end is not None and begin >= end):
        table.refuse("from and to", "belong together, and from is the earlier one")
    return PlotLayout(
        name=table.text("name") or f"plot {number}",
        series=series,
        by=table.text("by") or "none",
        sources=table.texts("sources"),
        from_ms=begin,
        to_ms=end,
        axes=_axes(table),
    )


def _time_ms(table: TomlTable, key: str) -> float | None:
    value = table.entries.get(key)
    if value is None or (isinstance(value, datetime) and value.tzinfo is not None):
        return None if value is None else value.timestamp() * 1000
    table.refuse(key, f"must be a time with its zone, such as 2026-11-18T12:00:00Z, not {show(value)}")


def _axes(table: TomlTable) -> dict[str, tuple[float, float]]:
    axes = TomlTable(f"{table.location}: axes", table.entries.get("axes", {}))
    found = {}
    for unit, pair in axes.entries.items():
        try:
            low, high = msgspec.convert(pair, tuple[float, float])
        except msgspec.ValidationError:
            low = high = inf
        if not (isfinite(high - low) and low < high):
            axes.refuse(repr(unit), f"must be a list of two numbers, the lower first, not {show(pair)}")
        found[unit] = low, high
    return found


def _alerts(root: TomlTable) -> tuple[Alert, ...]:
    found = tuple(_alert(table) for table in root.tables("alert", ALERT_KEYS))
    _check_number(root, "alert", found, MAX_ALERTS)
    return found


def _alert(table: TomlTable) -> Alert:
    table.require("subscription")
    name = table.text("name") or ""
    if len(name) > MAX_NAME:
        table.refuse("name", f"has {len(name)} characters; {MAX_NAME} is the most")
    return Alert(
        subscription=_subscription(table, "subscription") or "",
        name=name,
        severity="bad" if table.one_of("severity", ("warn", "bad"), "warn") == "bad" else "warn",
        sources=table.texts("sources"),
        webhook=table.flag("webhook", True),
    )


def _check_number(root: TomlTable, key: str, found: tuple[object, ...], most: int) -> None:
    if len(found) > most:
        root.refuse(f"[[{key}]]", f"is given {len(found)} times; {most} is the most")


# -- as text -----------------------------------------------------------------------------------------------------------


def plots_of(content: object) -> tuple[PlotLayout, ...]:
    """Return the plots that a page sends; BusError names what is wrong."""
    try:
        given = msgspec.convert(content, tuple[PlotLayout, ...], strict=False)
    except msgspec.ValidationError as problem:
        raise BusError(f"plots: {problem}") from None
    tables = [{key: value for key, value in _plot_entries(plot) if value is not None} for plot in given]
    return read_plots(TomlTable("plots", {"plot": tables}))


def _plot_entries(plot: PlotLayout) -> Iterator[tuple[str, Any]]:
    yield "name", plot.name or None
    yield "series", list(plot.series)
    yield "by", None if plot.by == "none" else plot.by
    yield "sources", list(plot.sources) or None
    for key, at_ms in (("from", plot.from_ms), ("to", plot.to_ms)):
        yield key, None if at_ms is None else _time(at_ms)
    yield "axes", {unit: list(pair) for unit, pair in plot.axes.items()} or None


def _time(at_ms: float) -> datetime:
    try:
        return datetime.fromtimestamp(at_ms / 1000, UTC)
    except (ValueError, OverflowError, OSError):
        raise BusError(f"plots: {at_ms!r} is no time in milliseconds since 1970") from None


def _alert_entries(alert: Alert) -> Iterator[tuple[str, Any]]:
    yield "name", alert.name or None
    yield "subscription", alert.subscription
    yield "severity", alert.severity
    yield "sources", list(alert.sources) or None
    yield "webhook", None if alert.webhook else False


def layout_text(layout: Layout) -> str:
    """A layout as a file, without options and the webhook, which may be secret."""
    return "\n".join(_lines(layout))


def _lines(layout: Layout) -> Iterator[str]:
    yield "# Genus Studio: genus studio --layout FILE"
    for key in ("title", "sources", "types", "watch", "catalog", "view", "sound"):
        if value := getattr(layout, key):
            yield f"{key} = {_value(value)}"
    if layout.webhook:
        yield "# webhook and [options] are not written here, as they may be secret"
    for key, tables in (
        ("plot", map(_plot_entries, layout.plots)),
        ("alert", map(_alert_entries, layout.alerts)),
    ):
        for entries in tables:
            yield from _table_lines(key, entries)
    yield ""


def _table_lines(key: str, entries: Iterable[tuple[str, Any]]) -> Iterator[str]:
    yield f"\n[[{key}]]"
    yield from (f"{name} = {_value(value)}" for name, value in entries if value is not None)


def _value(value: Any) -> str:
    """A value as TOML has it.

    >>> _value(["a\\x7f", True, 1.5, {"m": [0, 1]}])
    '["a\\\\u007f", true, 1.5, {"m" = [0, 1]}]'
    """
    match value:
        case list() | tuple():
            return f"[{', '.join(map(_value, value))}]"
        case dict():
            return f"{{{', '.join(f'{_value(key)} = {_value(each)}' for key, each in value.items())}}}"
        case datetime():
            return value.isoformat().replace("+00:00", "Z")
    return json.dumps(value, ensure_ascii=False).replace("\x7f", "\\u007f")
