"""`genus c`: C for micro-controllers."""

import shlex
from collections.abc import Collection, Iterable, Sequence
from hashlib import sha256
from pathlib import Path
from typing import TYPE_CHECKING, Any, cast, get_args

import click

from genus.cli._can_live import Quality
from genus.cli._completion import complete_catalog_types, complete_files
from genus.cli._events import load_all, types_option
from genus.cli._groups import ParamType, SectionedGroup, counted
from genus.filters import Subscription, TypesByName, read_subscriptions

if TYPE_CHECKING:
    from genus.can.types import Plan
    from genus.catalog import Catalog
    from genus.devices import DeviceChannel, Firmware
    from genus.devices.types import NodeFeature

SOURCE = click.Path(exists=True, dir_okay=False, path_type=Path)


class Published(ParamType[str]):
    """A type, with the quality of service and the attributes of Event, such as Lamp=soft:20ms+place,time."""

    name = "TYPE"

    def convert(self, value: Any, param: click.Parameter | None, ctx: click.Context | None) -> str:
        """Refuse a quality of service that is none."""
        Quality().convert(_quality(value), param, ctx)
        return str(value)


@click.group(cls=SectionedGroup)
def c() -> None:
    """Generate C for micro-controllers."""


@c.command("generate")
@types_option(required=False)
@click.argument("catalog", type=SOURCE, shell_complete=complete_files)
@click.argument("subscriptions", type=SOURCE, required=False, shell_complete=complete_files)
@click.option(
    "-o",
    "--out",
    "output",
    type=click.Path(file_okay=False, path_type=Path),
    metavar="FOLDER",
    default=Path("."),
    show_default="this folder",
    help="The folder to write to; it is made if it is missing.",
)
@click.option("--name", help="Prefix of all names in C, and of the files [the name of the catalog file].")
@click.option(
    "--publish",
    type=Published(),
    multiple=True,
    metavar="TYPE",
    shell_complete=complete_catalog_types,
    help="A type that the device publishes; repeat it for more. With --node, its quality of service and the attributes "
    "of Event that it carries may follow: Lamp=soft:20ms+place,time.",
)
@click.option("--keep", metavar="NAMES", help="Attributes to keep, separated by commas [all].")
@click.option(
    "--codec",
    type=click.Choice(["table", "straight"]),
    default="table",
    show_default=True,
    help="Tables take little flash and can learn types that are registered later; straight code is quicker.",
)
@click.option(
    "--late",
    type=click.IntRange(0, 32),
    default=4,
    show_default=True,
    metavar="N",
    help="With tables: how many types that were registered later the device can learn.",
)
@click.option(
    "--late-buffer",
    type=click.IntRange(0),
    metavar="BYTES",
    help="With --node: room for the first event of such a type, which waits for the broker's answer; 0: it is lost. "
    "[the data of a frame: 8, or 64 with CAN FD]",
)
@click.option("--banks", type=click.IntRange(1), metavar="N", help="Acceptance filters of the controller [no limit].")
@click.option(
    "--residual", is_flag=True, help="Leave what a device cannot test to the handlers, instead of refusing it."
)
@click.option("--runtime/--no-runtime", default=True, show_default=True, help="Write the files of the runtime, too.")
@click.option("--node", is_flag=True, help="Write the CAN node and its tables, too.")
@click.option(
    "--system", type=SOURCE, help="With --node: the system file of the bus, which has the slots of hard channels."
)
@click.option("--station", metavar="NAME", help="With --system: the name of this node there.")
@click.option(
    "--bitrate", type=click.IntRange(1), metavar="BITS", help="With --node, without --system: bits per second [500000]."
)
@click.option(
    "--without",
    metavar="FEATURES",
    default="",
    help="With --node: leave out segmentation (events in several frames), calendar (hard channels, global time), late "
    "(as --late 0); separated by commas. It is refused for what is needed.",
)
@click.option("--fuzz", is_flag=True, help="Write a harness for fuzzers (libFuzzer, AFL++), too.")
@click.option("--explain", "explains", is_flag=True, help="Show what is tested where, and the flash and RAM it takes.")
def generate_command(
    types: tuple[str, ...],
    catalog: Path,
    subscriptions: Path | None,
    output: Path,
    name: str | None,
    runtime: bool,
    fuzz: bool,
    explains: bool,
    **options: Any,
) -> None:
    """Generate a header and a source for a device.

    CATALOG is a file with types and their numbers. SUBSCRIPTIONS has one subscription a line, with the name of its
    handler before it (`slow: Loop where speed < 30`); empty lines and lines that begin with # are skipped. Types come
    from the catalog; with -t, bounds that classes declare for their attributes are checked on the device, too, and
    constants have the names of Enum members.

    \b
    genus c generate -t examples/traffic.py city.json subscriptions.txt -o firmware
    genus c generate city.json subscriptions.txt -o firmware --publish Lamp --keep place,lane,on --codec straight
    genus c generate city.json subscriptions.txt -o firmware --node --publish Lamp=soft:20ms+place
    genus c generate city.json subscriptions.txt -o firmware --node --without calendar,late
    """
    from genus.catalog import Catalog

    features = _features(options["without"], options["late"])
    _check_node_options(**options)
    known = Catalog.load(catalog)
    loaded = load_all(types)  # before the catalog declares classes: it takes these, which have bounds, if they fit
    classes = [known.declare(each) for each in known.types]
    _check_loaded(loaded, classes, catalog)
    unknown = _not_in(known, loaded)
    named = TypesByName([*classes, *unknown])
    asked = (
        [] if subscriptions is None else read_subscriptions(subscriptions, lambda text: Subscription.parse(text, named))
    )
    _check_asked(asked, unknown, catalog)
    made = _generate(known, asked, classes, features, name=name or _prefix(catalog), **options)
    origin = _origin(catalog, options["system"])
    written = made.write(output, runtime=runtime, harness=fuzz, origin=origin)
    if not types:
        click.echo(
            "note: bounds that classes declare are not checked on the device, and names of Enum members are not known; "
            "give -t for that",
            err=True,
        )
    if explains:
        click.echo(made.explain())
    click.echo(f"{output}: {', '.join(path.name for path in written)}; {counted(len(asked), 'subscription')}", err=True)


def _origin(catalog: Path, system: Path | None) -> dict[str, str]:
    """Return what the firmware is made from: files with their digests, and the command without the folder."""
    files = {"catalog": catalog} | ({} if system is None else {"system file": system})
    found = {what: f"{path.name}, SHA-256 {sha256(path.read_bytes()).hexdigest()}" for what, path in files.items()}
    context = click.get_current_context()
    words = context.command_path.split()
    for each in context.command.params:
        given = context.params.get(each.name or "")
        if each.name in (None, "output") or given is None or not _is_given(each.name or ""):
            continue
        if isinstance(each, click.Argument):
            words.append(str(given))
        elif isinstance(each, click.Option) and each.is_flag:
            words.append(each.opts[0] if given else each.secondary_opts[0])
        else:
            for value in given if each.multiple else [given]:
                words += [each.opts[-1], str(value)]
    command = shlex.join(words).replace("|", "\\|")
    return {**found, "command": f"`{command}`"}


def _features(without: str, late: int) -> set[str]:
    """Return what `--without` leaves out; UsageError if it names what every node has."""
    from genus.devices.types import NodeFeature

    left_out = {part.strip() for part in without.split(",") if part.strip()}
    known = (*get_args(NodeFeature), "late")
    if unknown := sorted(left_out.difference(known)):
        raise click.UsageError(f"a node cannot do without {unknown[0]!r}; it can without {', '.join(known)}")
    if "late" in left_out and late and _is_given("late"):
        raise click.UsageError(f"--late {late} and --without late contradict each other; give one of them")
    return left_out


def _generate(
    known: "Catalog",
    asked: Sequence[tuple[str, Subscription]],
    classes: Sequence[type],
    left_out: set[str],
    *,
    publish: Sequence[str],
    keep: str | None,
    late: int,
    node: bool,
    system: Path | None,
    station: str | None,
    bitrate: int | None,
    without: str,
    **options: Any,
) -> "Firmware":
    from genus.devices import generate

    made = generate(
        known,
        asked,
        publish=[_published(_published_type(each), classes) for each in publish],
        keep=None if keep is None else [part.strip() for part in keep.split(",") if part.strip()],
        late=0 if "late" in left_out else late,
        **options,
    )
    if not node:
        return made
    features = cast("Collection[NodeFeature]", sorted(left_out - {"late"}))
    if system is None:
        return made.with_node([_channel(each) for each in publish], bitrate=bitrate or 500_000, without=features)
    return made.with_node(plan=_plan(system), station=station, without=features)


def _is_given(option: str) -> bool:
    """Return whether an option of the command is not its default."""
    return click.get_current_context().get_parameter_source(option) is not click.core.ParameterSource.DEFAULT


def _prefix(catalog: Path) -> str:
    """Return a prefix for C of the name of a file."""
    plain = "".join(letter if letter.isascii() and letter.isalnum() else "_" for letter in catalog.stem.lower())
    return plain if plain and not plain[0].isdigit() else f"device_{plain}"


def _check_loaded(loaded: Iterable[type], classes: Collection[type], catalog: Path) -> None:
    """Raise DeviceError if a loaded class is another one than the catalog has: its bounds would not be checked."""
    from genus.errors import DeviceError
    from genus.model import name_of

    names = {name_of(cls) for cls in classes}
    for cls in loaded:
        if name_of(cls) in names and cls not in classes:
            raise DeviceError(f"{name_of(cls)} does not fit {catalog}; register it with `genus catalog register` first")


def _not_in(known: "Catalog", loaded: Iterable[type]) -> list[type]:
    from genus.model import name_of

    return [cls for cls in loaded if name_of(cls) not in known]


def _check_asked(asked: Iterable[tuple[str, Subscription]], unknown: Collection[type], catalog: Path) -> None:
    """Raise DeviceError if a subscription asks for a loaded class that the catalog does not have."""
    from genus.errors import DeviceError
    from genus.model import name_of

    for label, subscription in asked:
        if missing := [name_of(cls) for cls in subscription.types if cls in unknown]:
            raise DeviceError(
                f"{label}: {', '.join(missing)} is not in the catalog, so it cannot be subscribed to; "
                f"register it first (`genus catalog register {catalog} FILE`)"
            )


def _published(name: str, classes: Sequence[type]) -> type | str:
    from genus.model import name_of

    return next((cls for cls in classes if name_of(cls) == name), name)


def _published_type(text: str) -> str:
    return text.partition("=")[0].strip()


def _quality(text: str) -> str:
    return text.partition("=")[2].partition("+")[0].strip() or "none"


def _channel(text: str) -> "DeviceChannel":
    from genus.devices import DeviceChannel

    carries = text.partition("=")[2].partition("+")[2]
    names = tuple(name.strip() for name in carries.split(",") if name.strip())
    return DeviceChannel(_published_type(text), _quality(text), names)


def _plan(system: Path) -> "Plan":
    from genus.can import load_system, plan

    return plan(load_system(system))


def _check_node_options(
    *,
    node: bool,
    publish: Sequence[str],
    system: Path | None,
    station: str | None,
    bitrate: int | None,
    late_buffer: int | None,
    without: str,
    **_: object,
) -> None:
    """Raise UsageError for options that do not go together."""
    with_quality = [each for each in publish if "=" in each]
    if not node and (system or station or bitrate or with_quality or without or late_buffer is not None):
        raise click.UsageError(
            "--system, --station, --bitrate, --late-buffer, --without and qualities of service are for --node"
        )
    if (system is None) is not (station is None):
        raise click.UsageError("--system FILE and --station NAME, the name of this node there, go together")
    if system is not None and (bitrate or with_quality):
        raise click.UsageError("the file of --system has the bit rate and the qualities of service; leave them out")
