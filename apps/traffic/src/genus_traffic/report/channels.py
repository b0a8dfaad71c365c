"""What became of the events of every channel: delivered, filtered, missed, and how long they took."""

from collections.abc import Iterable, Iterator, Sequence

from genus_traffic.report.figures import count, micros, some
from genus_traffic.report.markup import NOTHING, Child, Markup, element
from genus_traffic.report.section import empty, figure, folded, legend, meter, section, table
from genus_traffic.results import ChannelRow, Results

_SAYS = (
    "Most of what a node hears is not for it. Its controller's filters keep that away before its program wakes up. "
    "“Missed” means not there at the deadline; the bar on the right shows how much of the proved bound the slowest "
    "event used. Hard events use all of it by design: they are handed over at the deadline, neither late nor early."
)
_FATES = ("delivered", "filtered", "missed")
_HEADS = ("Channel", "Published", "Delivered, filtered, missed", "Longest way, of the bound that the plan proves")
_ORDER = ("hard", "soft", "none")


def draw(results: Results) -> Markup:
    """All sites together, then each."""
    if not results.channels:
        return section("channels", "What the channels did", _SAYS, empty("No channel was in use."))
    key = legend([("delivered", "delivered"), ("filtered", "filtered"), ("missed", "missed")])
    whole = table(_HEADS, map(_row, together_by_channel(results.channels)), "Channels of all sites together")
    heads = ("Site", *_HEADS)
    single = table(heads, ((row.site, *_row(row)) for row in results.channels), "Channels by site")
    sites = some(len({row.site for row in results.channels}), "site")
    return section(
        "channels",
        "What the channels did",
        _SAYS,
        figure(f"Channels, {sites} together", key, whole),
        folded("By site", single, on_paper=False),
    )


def together_by_channel(rows: Iterable[ChannelRow]) -> list[ChannelRow]:
    """Channels of one name and class, summed over the sites; their longest way is that of the slowest site."""
    grouped: dict[tuple[str, str], list[ChannelRow]] = {}
    for row in rows:
        grouped.setdefault((row.channel, row.qos), []).append(row)
    summed = [_summed(group) for group in grouped.values()]
    return sorted(summed, key=lambda row: _ORDER.index(row.qos) if row.qos in _ORDER else len(_ORDER))


def _summed(group: Sequence[ChannelRow]) -> ChannelRow:
    slowest = max(group, key=lambda row: row.worst_us / row.bound_us if row.bound_us else row.worst_us / 1e12)
    return ChannelRow(
        site="all",
        channel=slowest.channel,
        qos=slowest.qos,
        published=sum(row.published for row in group),
        delivered=sum(row.delivered for row in group),
        filtered=sum(row.filtered for row in group),
        missed=sum(row.missed for row in group),
        worst_us=slowest.worst_us,
        bound_us=slowest.bound_us,
    )


def _row(row: ChannelRow) -> tuple[Child, ...]:
    name = element("div", row.channel, " ", element("span", row.qos, class_=f"chip qos-{row.qos}"))
    return name, count(row.published), _fates(row), _way(row)


def _fates(row: ChannelRow) -> Markup:
    total = row.delivered + row.filtered + row.missed
    bar = element("div", *_parts(row, total), class_="stack") if total else NOTHING
    words = (_words(row, fate) for fate in _FATES)
    return element("div", bar, element("small", *words), class_="fates")


def _words(row: ChannelRow, fate: str) -> Markup:
    number = getattr(row, fate)
    class_ = "differs" if fate == "missed" and number else None
    return element("span", f"{count(number)} {fate}", class_=class_)


def _parts(row: ChannelRow, total: int) -> Iterator[Markup]:
    for fate in _FATES:
        number = getattr(row, fate)
        if number:
            yield element(
                "span", class_=fate, style=f"width:{100 * number / total:.2f}%", title=f"{count(number)} {fate}"
            )


def _way(row: ChannelRow) -> Markup:
    if row.bound_us is None:
        return element("small", f"{micros(row.worst_us)}, nothing is promised")
    says = f"{micros(row.worst_us)} of {micros(row.bound_us)}"
    over = row.worst_us > row.bound_us
    part = row.worst_us / row.bound_us if row.bound_us else 1.0
    words = element("small", says + (", too long" if over else ""), class_="differs" if over else None)
    return element("div", meter(part, "missed" if over else "delivered", label=says), words)
