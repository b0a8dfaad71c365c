"""What codes save on CoAP: table 2 of "Types in Their Prime" (4.2), requests, discovery, super-resources.

`python -m bench.coap_paths examples/resources.txt` prints it for any list of resources.

The paper counts the bytes of paths. In a request each segment has an option header too, a link of discovery has more
than a path, and a long payload comes in blocks, each with a request of its own; so those are sized as messages.
"""

import re
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import asdict, dataclass

import click
from rich.console import Console
from rich.table import Table

from bench.coap_resources import ROOT, Resource, read_resources
from bench.coap_sizes import (
    BLOCK_SIZES,
    CBOR,
    LINK_FORMAT,
    URI_PATH,
    URI_QUERY,
    Option,
    Traffic,
    size_cbor_pairs,
    size_get,
    size_options,
)
from genus.cli._completion import complete_files
from genus.cli._groups import counted, plain_table, print_json
from genus.codes._encoding import MAX_SEGMENT_BYTES, code_size, encode_path_segment
from genus.codes._prime_schemes import NotApplicable, assign_codes
from genus.errors import HierarchyError, did_you_mean

SCHEMES = {"original": "original", "compact": "compact", "line": "line", "any": "line, any join"}
"""The words of `--scheme` and what the schemes are called in tables."""


EXPERIMENTAL_OPTION = 65000
"""The first number for experiments (RFC 7252, 12.2): the paper's option for codes as numbers has none of its own."""

Codes = Mapping[str, int]

_SEGMENT_FORMS: Mapping[str, Callable[[int], int]] = {
    "decimal": lambda code: len(str(code)),
    "base64url": lambda code: (8 * code_size(code) + 5) // 6,
    "base-64 digits": lambda code: (code.bit_length() + 5) // 6,
}
"""The lengths of a code as one segment: decimal text, the text of `encode_path_segment`, the digits of a number."""

_WELL_KNOWN_CORE: tuple[Option, ...] = ((URI_PATH, len(".well-known")), (URI_PATH, len("core")))

_UNQUOTED = re.compile(r"[a-z][a-z0-9.-]*")
"""A resource type that needs no quotes in a link (RFC 6690, 2)."""


@dataclass(frozen=True, slots=True)
class PathCost:
    """The bytes that the paths take in one form, and what it saves against names, in percent.

    `scheme` says whose codes they are; it is empty for names.
    """

    scheme: str
    form: str
    bytes: int
    mean_bytes: float
    saved_percent: float


@dataclass(frozen=True, slots=True)
class TrafficCost:
    """The datagrams, and their bytes, that one way of doing something takes."""

    way: str
    datagrams: int
    bytes: int


@dataclass(frozen=True, slots=True)
class CoapSettings:
    """The bytes of a block, a token and a value, and the number of the option that has a code as a number."""

    block: int = 64
    token: int = 0
    value: int = 12
    option: int = EXPERIMENTAL_OPTION


@dataclass(frozen=True, slots=True)
class CoapReport:
    """What the paths of some resources cost, by name and by code.

    Attributes:
        scheme: Whose codes are in requests and links.
        paths: The bytes of all paths, for each scheme: the paper's table 2.
        requests: The bytes of the options that name the resources in requests.
        server: The number of resources of the server that is asked.
        discovery: What it takes to find all of them, and those below one path.
        below: That path, a super-resource; empty if no resource is below another.
        held: The number of resources at or below it.
        values: What it takes to get the values of those.
    """

    scheme: str
    paths: tuple[PathCost | NotApplicable, ...]
    requests: tuple[PathCost, ...]
    server: int
    discovery: tuple[TrafficCost, ...]
    below: str
    held: int
    values: tuple[TrafficCost, ...]


DEFAULTS = CoapSettings()


def measure_coap(
    resources: Sequence[Resource],
    *,
    scheme: str = "line",
    only: Iterable[str] = (),
    below: str | None = None,
    settings: CoapSettings = DEFAULTS,
) -> CoapReport:
    """Return what resources cost on CoAP, by name and by code: their paths, requests, discovery and values.

    Args:
        resources: All resources, as `read_resources` gives them.
        scheme: Whose codes requests and links have: one of those that `compare_schemes` compares.
        only: The server has what is at or below these paths only; everything by default.
        below: The path whose resources are asked for; by default that with most below it, but not all, if there is one.
        settings: The sizes of blocks, tokens and values.

    Raises:
        HierarchyError: A path is unknown, nothing is below it, or the scheme cannot code the resources.

    >>> from bench.coap_resources import Resource
    >>> a, b = Resource("/room"), Resource("/room/light", ("/room",))
    >>> [(cost.form, cost.bytes) for cost in measure_coap([a, b]).requests][:2]
    [('names', 16), ('decimal', 4)]
    """
    by_scheme = _assign(resources)
    codes = _choose_codes(by_scheme, scheme)
    server = [one for one in _select(resources, codes, only) if not one.collects]
    asked = _fullest(server, codes) if below is None else below
    held = _select(server, codes, [asked]) if asked else []
    return CoapReport(
        scheme,
        tuple(measure_paths(resources, by_scheme)),
        tuple(measure_requests(resources, codes, scheme, settings.option)),
        len(server),
        tuple(measure_discovery(server, held, codes, asked, settings)),
        asked,
        len(held),
        tuple(measure_values(held, codes, asked, settings)),
    )


def _assign(resources: Iterable[Resource]) -> dict[str, Codes | NotApplicable]:
    """Return the codes of each scheme that can code the resources in paths."""
    by_scheme = assign_codes({resource.path: resource.parents for resource in resources})
    longest = _SEGMENT_FORMS["base64url"]
    for label, codes in by_scheme.items():
        if not isinstance(codes, NotApplicable) and max(map(longest, codes.values())) > MAX_SEGMENT_BYTES:
            by_scheme[label] = NotApplicable(label, "a code is too long for a path")
    return by_scheme


def _choose_codes(by_scheme: Mapping[str, Codes | NotApplicable], scheme: str) -> Codes:
    codes = by_scheme.get(scheme)
    if codes is None or isinstance(codes, NotApplicable):
        why = codes.reason if codes else f"there are {', '.join(by_scheme)}"
        raise HierarchyError(f"scheme {scheme!r} gives no codes: {why}; choose another scheme")
    return codes


def _select(resources: Iterable[Resource], codes: Codes, paths: Iterable[str]) -> list[Resource]:
    """Return the resources at or below any of the paths, as their codes say; all if no path is named."""
    wanted = list(paths)
    for path in wanted:
        if path not in codes:
            raise HierarchyError(
                f"no path {path!r}; {did_you_mean(path, codes)}the first are {', '.join([*codes][:5])}"
            )
    divisors = [codes[path] for path in wanted] or [1]
    found = [one for one in resources if any(codes[one.path] % divisor == 0 for divisor in divisors)]
    if not any(not one.collects for one in found):
        raise HierarchyError(f"no resource is at or below {', '.join(wanted)}; name another path")
    return found


def _fullest(server: Sequence[Resource], codes: Codes) -> str:
    """The path with most resources at or below it, but not all if there is one; empty if each has only itself."""
    counts = {path: sum(codes[one.path] % code == 0 for one in server) for path, code in codes.items()}
    several = {path: count for path, count in counts.items() if count > 1}
    return max(several, key=lambda path: (several[path] < len(server), several[path]), default="")


def measure_paths(
    resources: Sequence[Resource], by_scheme: Mapping[str, Codes | NotApplicable]
) -> list[PathCost | NotApplicable]:
    """Table 2: the bytes of all paths as names, and as decimal text and numbers by the codes of each scheme."""
    names = [len(resource.path) for resource in resources]
    found: list[PathCost | NotApplicable] = [_path_cost("", "names", names, names)]
    for label, codes in by_scheme.items():
        if isinstance(codes, NotApplicable):
            found.append(codes)
            continue
        for form, size in {**_SEGMENT_FORMS, "uint": code_size}.items():
            found.append(_path_cost(label, form, [size(codes[resource.path]) for resource in resources], names))
    return found


def measure_requests(resources: Sequence[Resource], codes: Codes, scheme: str, option: int) -> list[PathCost]:
    """The bytes of the options that name each resource in a request: names, one segment, or an option of its own."""
    names = [size_options(_name_options(resource)) for resource in resources]
    found = [_path_cost("", "names", names, names)]
    values = [codes[resource.path] for resource in resources]
    for form, size in _SEGMENT_FORMS.items():
        found.append(_path_cost(scheme, form, [size_options([(URI_PATH, size(code))]) for code in values], names))
    numbers = [size_options([(option, code_size(code))]) for code in values]
    return [*found, _path_cost(scheme, f"uint, option {option}", numbers, names)]


def _path_cost(scheme: str, form: str, sizes: Sequence[int], names: Sequence[int]) -> PathCost:
    total, by_name = sum(sizes), sum(names)
    saved = 100 * (1 - total / by_name) if by_name else 0.0
    return PathCost(scheme, form, total, total / len(sizes), saved)


def _name_options(resource: Resource) -> list[Option]:
    return [(URI_PATH, len(segment)) for segment in resource.segments]


def _code_options(code: int) -> list[Option]:
    return [(URI_PATH, len(encode_path_segment(code)))]


def measure_discovery(
    server: Sequence[Resource], held: Sequence[Resource], codes: Codes, below: str, settings: CoapSettings
) -> list[TrafficCost]:
    """Return what it takes to find the resources of a server: all and those below a path, by names and by codes."""

    def get(way: str, links: Sequence[str], query: str = "") -> TrafficCost:
        options = [*_WELL_KNOWN_CORE, *([(URI_QUERY, len(query))] if query else [])]
        return _cost(way, _get(options, len(",".join(links)), LINK_FORMAT, settings))

    found = [get("names", list(map(link_by_name, server)))]
    if below and all(is_below(resource.path, below) for resource in held):
        found.append(get(f"names below {below}", list(map(link_by_name, held)), f"href={below}*"))
    found.append(get("codes", [link_by_code(codes[resource.path]) for resource in server]))
    if below:
        links = [link_by_code(codes[resource.path]) for resource in held]
        found.append(get(f"codes below {below}", links, f"is={encode_path_segment(codes[below])}"))
    return found


def is_below(path: str, above: str) -> bool:
    """Return whether a path begins with the segments of another, so that names can ask for it by `href=above*`.

    >>> is_below("/room/light", "/room"), is_below("/roomy", "/room"), is_below("/room", "/")
    (True, False, True)
    """
    return f"{path}/".startswith(f"{above.removesuffix(ROOT)}/")


def link_by_name(resource: Resource) -> str:
    """Return the link of a resource in discovery (RFC 6690), with its resource types if they are known.

    >>> link_by_name(Resource("/pwr/0/w", resource_type="ipso.pwr.w"))
    '</pwr/0/w>;rt=ipso.pwr.w'
    """
    kind = resource.resource_type
    if not kind:
        return f"<{resource.path}>"
    return f"<{resource.path}>;rt={kind}" if _UNQUOTED.fullmatch(kind) else f'<{resource.path}>;rt="{kind}"'


def link_by_code(code: int) -> str:
    """Return the link of a resource whose path is its code, which is its type, too.

    >>> link_by_code(21)
    '</FQ>'
    """
    return f"</{encode_path_segment(code)}>"


def measure_values(held: Sequence[Resource], codes: Codes, below: str, settings: CoapSettings) -> list[TrafficCost]:
    """What it takes to get the values below a path: one by one by names and by codes, and by the super-resource."""
    if not held:
        return []

    def one_by_one(paths: Iterable[Sequence[Option]]) -> Traffic:
        return sum((_get(options, settings.value, CBOR, settings) for options in paths), Traffic(0, 0))

    together = size_cbor_pairs((codes[resource.path] for resource in held), settings.value)
    return [
        _cost("names, one by one", one_by_one(map(_name_options, held))),
        _cost("codes, one by one", one_by_one(_code_options(codes[resource.path]) for resource in held)),
        _cost(f"super-resource {below}", _get(_code_options(codes[below]), together, CBOR, settings)),
    ]


def _get(options: Sequence[Option], payload: int, content_format: int, settings: CoapSettings) -> Traffic:
    return size_get(options, payload, content_format, block=settings.block, token=settings.token)


def _cost(way: str, traffic: Traffic) -> TrafficCost:
    return TrafficCost(way, traffic.datagrams, traffic.bytes)


# -- the command -------------------------------------------------------------------------------------------------------


@click.command()
@click.argument("source", metavar="FILE_OR_MODULE", shell_complete=complete_files)
@click.option(
    "--scheme",
    type=click.Choice(list(SCHEMES)),
    default="line",
    show_default=True,
    help="Whose codes are in requests and links.",
)
@click.option("--only", multiple=True, metavar="PATH", help="The server has only what is at or below PATH; repeat it.")
@click.option("--below", metavar="PATH", help="The super-resource to ask [that with most resources].")
@click.option(
    "--block",
    type=click.Choice(list(map(str, BLOCK_SIZES))),
    default="64",
    show_default=True,
    help="Bytes of a block.",
)
@click.option("--token", type=click.IntRange(0, 8), default=0, show_default=True, metavar="N", help="Bytes of a token.")
@click.option(
    "--value", type=click.IntRange(1), default=12, show_default=True, metavar="N", help="Bytes of a resource's value."
)
@click.option(
    "--option",
    type=click.IntRange(1, 65535),
    default=CoapSettings().option,
    show_default=True,
    metavar="N",
    help="The number of the option that has a code as a number.",
)
@click.option("--json", "as_json", is_flag=True, help="Print JSON instead of tables.")
def coap_command(
    source: str, scheme: str, only: tuple[str, ...], below: str | None, as_json: bool, block: str, **sizes: int
) -> None:
    """Show what codes save on CoAP.

    They are in paths of resources, so requests, discovery and super-resources get shorter.

    FILE_OR_MODULE has paths of resources, one a line (`/sensor/temp`; one that ends with / only collects those below
    it), or is a CSV file with a column path or path_template, or anything that `genus codes` takes.

    \b
    python -m bench.coap_paths examples/resources.txt
    python -m bench.coap_paths examples/resources.txt --only /climate --below /climate/air --block 32
    """
    settings = CoapSettings(block=int(block), **sizes)
    report = measure_coap(read_resources(source), scheme=SCHEMES[scheme], only=only, below=below, settings=settings)
    if as_json:
        print_json({**asdict(report), "settings": asdict(settings)})
    else:
        _show_coap(source, report, settings)


def _show_coap(source: str, report: CoapReport, settings: CoapSettings) -> None:
    names = report.requests[0]
    assert isinstance(report.paths[0], PathCost)
    written, paths = report.paths[0], round(names.bytes / names.mean_bytes)
    _print(
        f"{counted(paths, 'path')} of {source}: {written.bytes:,} bytes as names, {written.mean_bytes:.2f} each",
        _path_table(report.paths),
    )
    _print("Options that name the resource in a request", _request_table(report.requests))
    found = f"Discovery of {counted(report.server, 'resource')} in blocks of {settings.block} bytes"
    _print(found, _traffic_table(report.discovery))
    if report.values:
        got = f"{counted(report.held, 'value')} of {counted(settings.value, 'byte')} below {report.below}"
        _print(got, _traffic_table(report.values))


def _print(title: str, table: Table) -> None:
    """Print a table below a title, which may be wider than the table."""
    click.echo(title)
    Console().print(table)


def _path_table(costs: Sequence[PathCost | NotApplicable]) -> Table:
    numbers = ("decimal", "mean", "saved", "uint", "mean", "saved")
    table = plain_table("codes", *numbers, numbers=numbers)
    by_form = {(cost.scheme, cost.form): cost for cost in costs if isinstance(cost, PathCost)}
    for cost in costs:
        if isinstance(cost, NotApplicable):
            table.add_row(f"{cost.scheme}: n/a, {cost.reason}")
        elif cost.form == "decimal":
            table.add_row(cost.scheme, *_shown(cost), *_shown(by_form[cost.scheme, "uint"]))
    return table


def _shown(cost: PathCost) -> tuple[str, str, str]:
    return f"{cost.bytes:,}", f"{cost.mean_bytes:.2f}", f"{cost.saved_percent:.0f}%"


def _request_table(costs: Iterable[PathCost]) -> Table:
    numbers = ("bytes", "mean", "saved")
    table = plain_table("path", *numbers, numbers=numbers)
    for cost in costs:
        table.add_row(f"{cost.scheme} codes: {cost.form}" if cost.scheme else cost.form, *_shown(cost))
    return table


def _traffic_table(costs: Iterable[TrafficCost]) -> Table:
    numbers = ("datagrams", "bytes")
    table = plain_table("by", *numbers, numbers=numbers)
    for cost in costs:
        table.add_row(cost.way, f"{cost.datagrams:,}", f"{cost.bytes:,}")
    return table


if __name__ == "__main__":
    coap_command()
