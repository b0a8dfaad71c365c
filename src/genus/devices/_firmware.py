"""`generate`: C for a device from a catalog and subscriptions."""

import os
from collections.abc import Collection, Iterable, Mapping, Sequence
from importlib import resources
from pathlib import Path

import msgspec

from genus.can.internal import MAX_EVENT
from genus.can.types import Plan
from genus.catalog import Catalog
from genus.devices._declarations import check_names, write_header
from genus.devices._definitions import write_harness, write_source
from genus.devices._node_code import write_node_header, write_node_source, write_settings
from genus.devices._node_tables import (
    DeviceChannel,
    NodeTables,
    channels_of,
    check_station,
    make_tables,
    unneeded_features,
)
from genus.devices._program import (
    MAX_NUMBERS,
    DeviceFamily,
    Handler,
    Program,
    choose_types,
    make_classes,
    make_families,
)
from genus.devices._readme import estimate, write_readme
from genus.devices.types import Codec, Estimate, NodeFeature
from genus.errors import DeviceError, did_you_mean
from genus.filters import Subscription
from genus.model import name_of
from genus.model.types import OpaqueType
from genus.targets import c, can
from genus.targets.c import CFilter, conforming_types
from genus.targets.internal import Constants, EventLayout, condense, identifier, snake_case

RUNTIME = ("genus_port.h", "genus_event.h", "genus_event.c", "genus_test.c", "genus_code.h", "genus_code.c")
"""The files of the runtime that generated code needs."""
NODE = (
    "genus_settings.h",
    "genus_frame.h",
    "genus_segments.h",
    "genus_segments.c",
    "genus_clock.h",
    "genus_clock.c",
    "genus_node.h",
    "genus_node_parts.h",
    "genus_node.c",
    "genus_membership.c",
    "genus_binding.c",
    "genus_channels.c",
    "genus_queue.c",
    "genus_calendar.c",
    "genus_receiver.c",
    "genus_questions.c",
    "genus_errors.c",
)
"""The files of the CAN node."""
_FILES_OF = {"calendar": ("genus_calendar.c", "genus_clock.c"), "late": ("genus_questions.c",)}
"""The files that are not needed without a feature."""
SETTINGS = "genus_settings.h"

_USED_NAMES = frozenset(
    (
        *("genus", "receive", "deliver", "decode", "keeps_bounds", "read_type"),
        *("late", "load", "type", "family", "wanted", "constant"),
        *("string", "stdint", "stdbool", "stddef"),
    )
)
"""Names that the runtime, generated functions or headers of C have, so that they are no prefixes."""


class Firmware(msgspec.Struct, frozen=True, eq=False):
    """The generated C of a device; made by `generate`.

    `header` and `source` are the texts of NAME.h and NAME.c, and `node_header` and `node_source`, which `with_node`
    makes, those of NAME_node.h and NAME_node.c, with `node_settings`, that of genus_settings.h. `left_out` are types
    that subscriptions accept and that have no event tag, so that they are not on a CAN bus.
    """

    name: str
    header: str
    source: str
    filters: tuple[CFilter, ...]
    left_out: tuple[str, ...]
    estimate: Estimate
    _program: Program
    _catalog: Catalog
    _banks: int | None = None
    node_header: str = ""
    node_source: str = ""
    node_settings: str = ""
    _without: frozenset[str] = frozenset()
    _tables: NodeTables | None = None
    _unneeded: frozenset[str] = frozenset()

    def explain(self) -> str:
        """Return what is tested where, what is left to the program, and the flash and RAM it takes, as text."""
        program = self._program
        lines = [f"{self.name}: {len(program.classes)} types, {len(program.handlers)} subscriptions"]
        lines += [f"  codec: {'straight code' if program.straight else f'by tables, {program.late} late classes'}"]
        for family in program.families.values():
            lines.append(f"  {family.name} keeps: {', '.join(family.layout.members) or 'nothing'}")
        lines.append(f"  controller: {len(program.filters)} acceptance filters")
        lines += [f"    {pair}" for pair in program.filters]
        lines += [f"  left out: {', '.join(self.left_out)}, which have no event tags"] if self.left_out else []
        lines += [f"  node: without {', '.join(sorted(self._without))}"] if self._without else []
        lines += [f"  {line}" for line in str(self.estimate).splitlines()]
        return "\n".join([*lines, *(made.explain() for made in self.filters)])

    def harness(self) -> str:
        """Return the source of a harness for fuzzers, which feeds bytes to everything that reads some.

        DeviceError for a device without subscriptions, which reads nothing.
        """
        if not self._program.handlers:
            raise DeviceError(f"{self.name} has no subscription, so there is nothing to feed bytes to")
        return write_harness(self._program)

    def with_node(
        self,
        channels: Iterable[DeviceChannel] | None = None,
        *,
        plan: Plan | None = None,
        station: str | None = None,
        bitrate: int = 500_000,
        without: Collection[NodeFeature] = (),
    ) -> "Firmware":
        """The same with the tables of a CAN node, `NAME_node.h` and `NAME_node.c`, which `write` then writes, too.

        `genus_settings.h` has the features and capacities of the node, with CAN FD if the plan has it.

        Args:
            channels: The channels of published types. Without it, those of the station in the plan; without a plan, all
                published types without real time.
            plan: The plan of the bus, with the slots of hard channels, the station's number and the bit rate.
            station: The name of this node in the plan.
            bitrate: Bits per second of a bus without a plan.
            without: Features to leave out: `segmentation` (events in several frames, sent or received), `calendar`
                (hard channels and global time). Types that are learnt are left out by `late=0` of `generate`.

        Raises:
            DeviceError: A channel's type is not published, the plan lacks the station, a hard channel has no slot, or a
                channel or a subscription needs what is left out.
        """
        if (plan is None) is not (station is None):
            raise DeviceError("a plan and the name of this station in it go together: give both plan and station")
        if plan is not None and station is not None:
            check_station(plan, station)
        channels = self._channels(plan, station) if channels is None else channels
        asked = [made.subscription for made in self.filters]
        program = self._program
        tables = make_tables(program, self._catalog, asked, channels, plan, station, bitrate, self._banks, without)
        return msgspec.structs.replace(
            self,
            node_header=write_node_header(program, tables),
            node_source=write_node_source(program, tables),
            node_settings=write_settings(program, tables, runtime_file(SETTINGS)),
            _without=tables.without | ({"late"} if not program.learns else set()),
            _tables=tables,
            _unneeded=unneeded_features(tables, program, self._catalog, plan),
        )

    def _channels(self, plan: Plan | None, station: str | None) -> list[DeviceChannel]:
        """Return the channels of a station in a plan, which are those of all published types; without one, as none."""
        if plan is None or station is None:
            return [DeviceChannel(name) for name in sorted(self._program.published)]
        planned = channels_of(plan, station)
        if missing := sorted(self._program.published - {each.name for each in planned}):
            raise DeviceError(f"{', '.join(missing)} is published, but the plan has no channel of {station!r} for it")
        return planned

    def _readme(self, names: Iterable[str], origin: Mapping[str, str]) -> str:
        """Return what is in a folder with these files, which need the runtime in any case."""
        sources = sorted(name for name in {*names, *RUNTIME} if name.endswith(".c"))
        node = self.node_header, self._tables, self._without, self._unneeded
        return write_readme(self._program, sources, self.estimate, *node, origin)

    def write(
        self,
        folder: str | os.PathLike[str],
        *,
        runtime: bool = True,
        harness: bool = False,
        origin: Mapping[str, str] | None = None,
    ) -> list[Path]:
        """Write the header and the source into a folder, with the runtime and, if asked, a harness for fuzzers.

        NAME_README.md says what to compile and to provide. After `with_node`, also the files of the node. The folder is
        made if it is missing. Files of the same names are replaced. Returns the files. `origin` is what the README
        says that it was made from, beside the version of Genus, such as the name and digest of the catalog's file.
        """
        target = Path(folder)
        target.mkdir(parents=True, exist_ok=True)
        texts = {f"{self.name}.h": self.header, f"{self.name}.c": self.source}
        if runtime:
            texts |= {name: runtime_file(name) for name in RUNTIME}
        if self.node_header:
            texts |= {f"{self.name}_node.h": self.node_header, f"{self.name}_node.c": self.node_source}
            unused = {name for feature in self._without for name in _FILES_OF.get(feature, ())}
            texts |= {name: runtime_file(name) for name in NODE if runtime and name not in unused}
            texts[SETTINGS] = self.node_settings
        texts[f"{self.name}_README.md"] = self._readme(texts, origin or {})
        if harness:
            texts[f"{self.name}_fuzz.c"] = self.harness()
        for name, text in texts.items():
            (target / name).write_text(text, encoding="utf-8", newline="\n")
        return [target / name for name in texts]


def runtime_file(name: str) -> str:
    return resources.files("genus.devices").joinpath("runtime", name).read_text(encoding="utf-8")


def generate(
    catalog: Catalog,
    subscriptions: Mapping[str, Subscription] | Iterable[tuple[str, Subscription]] = (),
    *,
    name: str = "device",
    publish: Iterable[type | str] = (),
    keep: Collection[str] | None = None,
    codec: Codec = "table",
    late: int = 4,
    late_buffer: int | None = None,
    banks: int | None = None,
    residual: bool = False,
) -> Firmware:
    """Generate C for a device that receives by some subscriptions and publishes some types.

    Args:
        catalog: The types, with event tags for those on the bus.
        subscriptions: Subscriptions with the names of their handlers, as `read_subscriptions` gives them.
        name: The prefix of everything that is generated, and of the files.
        publish: Types that the device publishes.
        keep: The attributes to keep in events; all without it. Attributes with bounds are always kept.
        codec: `table` reads payloads by tables, so that types that are registered later can be learnt; `straight`
            generates code for each type, which is quicker and knows no others. If in doubt, leave it at `table`.
        late: How many types can be learnt while the device runs; with straight code none.
        late_buffer: Bytes in which the node keeps the first event of such a type until the broker's answer comes; an
            event that is longer is lost, as all are with 0. Without it, as many as the data of a frame.
        banks: How many acceptance filters the controller has; without it, as many as are exact.
        residual: Leave what a device cannot test to the handlers, instead of refusing it.

    Raises:
        DeviceError: The device cannot test a part of a subscription, or cannot hold what is asked.
        NotRegistered: A type is not in the catalog, or has no event tag.
        SubscriptionError: A subscription tests an attribute that is not kept.

    >>> from genus import Event, Subscription, this
    >>> from genus.catalog import Catalog
    >>> from genus.model import UInt8
    >>> class Loop(Event):
    ...     lane: UInt8
    >>> catalog = Catalog()
    >>> added = catalog.register(Loop)
    >>> made = generate(catalog, {"left": Subscription(Loop, where=this.lane > 1)}, name="road")
    >>> "void road_on_left(const road_loop *event);" in made.header
    True
    """
    _check_options(name, codec, late, late_buffer)
    named = _named(subscriptions)
    published = [each if isinstance(each, str) else name_of(each) for each in publish]
    types, left_out = _choose_types(named, published, catalog)
    program, filters = _program(name, named, published, types, catalog, keep, banks, straight=codec == "straight")
    _check_residuals(named, filters, residual)
    program = msgspec.structs.replace(program, late=0 if program.straight else late, late_buffer=late_buffer)
    check_names(program)
    _check_publishable(program)
    _check_receivable(program)
    header, source = write_header(program), write_source(program)
    estimated = estimate(program, source)
    return Firmware(name, header, source, filters, tuple(left_out), estimated, program, catalog, banks)


def _choose_types(
    named: Sequence[tuple[str, Subscription]], published: Sequence[str], catalog: Catalog
) -> tuple[list[str], list[str]]:
    """Return the types that are received or published, and those that are left out as they have no event tag."""
    if not named and not published:
        raise DeviceError("there is nothing to generate: no subscription, and no type to publish")
    for name in published:
        if name not in catalog:
            hint = did_you_mean(name, catalog.types)
            raise DeviceError(f"{name!r} is not in the catalog, so it cannot be published; {hint}register it first")
    wanted = {label: conforming_types(subscription, catalog)[0] for label, subscription in named}
    return choose_types(wanted, published, catalog)


def _program(
    name: str,
    named: Sequence[tuple[str, Subscription]],
    published: Sequence[str],
    types: Sequence[str],
    catalog: Catalog,
    keep: Collection[str] | None,
    banks: int | None,
    *,
    straight: bool,
) -> tuple[Program, tuple[CFilter, ...]]:
    """Return what is generated, but for types that are learnt, and what each subscription became."""
    asked = [subscription for _, subscription in named]
    classes = {each: catalog.declare(each) for each in types}
    families = make_families(types, catalog, asked, classes, keep)
    constants = Constants()
    layouts = {family: made.layout for family, made in families.items()}
    filters = tuple(_compile(subscription, catalog, layouts, constants, set(types)) for subscription in asked)
    program = Program(
        name=name,
        banner=f"Generated by Genus from a catalog of {len(catalog.types)} types: do not edit. "
        "SPDX-License-Identifier: Apache-2.0",
        families=families,
        classes=tuple(make_classes(types, catalog, families, classes)),
        handlers=tuple(_handlers(name, named, filters, families, catalog)),
        published=frozenset(published),
        filters=_acceptance(asked, catalog, banks),
        constants=constants,
        straight=straight,
        late=0,
    )
    return program, filters


def _check_options(name: str, codec: str, late: int, late_buffer: int | None) -> None:
    if identifier(name) != name or not name.islower():
        raise DeviceError(
            f"{name!r} is no prefix for C; use lower-case letters, digits and _, not beginning with a digit"
        )
    if name in _USED_NAMES or name.startswith("genus_"):
        raise DeviceError(f"{name!r} cannot be the prefix: the runtime, or a header of C, has that name; use another")
    if codec not in ("table", "straight"):
        raise DeviceError(f"codec is {codec!r}; it is table or straight")
    if not 0 <= late <= 32:
        raise DeviceError(f"late is {late}; a device keeps 0 to 32 classes that it learns")
    if late_buffer is not None and not 0 <= late_buffer <= MAX_EVENT:
        raise DeviceError(f"late_buffer is {late_buffer}; an event has 1 to {MAX_EVENT} bytes, and 0 keeps none")
    if late_buffer and (late == 0 or codec == "straight"):
        why = "late is 0" if late == 0 else "straight code knows no types but its own; use tables"
        raise DeviceError(f"late_buffer is {late_buffer}, but the device learns no types: {why}")


def _named(
    subscriptions: Mapping[str, Subscription] | Iterable[tuple[str, Subscription]],
) -> list[tuple[str, Subscription]]:
    """Subscriptions with the names of their handlers; one without a name of its own gets that of its types."""
    pairs = list(subscriptions.items() if isinstance(subscriptions, Mapping) else subscriptions)
    given = [label for label, asked in pairs if label != str(asked)]
    if twice := sorted({label for label in given if given.count(label) > 1}):
        raise DeviceError(f"two subscriptions are named {', '.join(twice)}; each has a handler of its own name")
    return [("_".join(map(name_of, asked.types)) if label == str(asked) else label, asked) for label, asked in pairs]


def _compile(
    subscription: Subscription,
    catalog: Catalog,
    layouts: Mapping[str, EventLayout],
    constants: Constants,
    types: Collection[str],
) -> CFilter:
    made = c.compile(subscription, catalog, layouts, constants)
    tests = {
        family: msgspec.structs.replace(test, types=tuple(name for name in test.types if name in types))
        for family, test in made.tests.items()
    }
    return msgspec.structs.replace(made, tests={family: test for family, test in tests.items() if test.types})


def _check_residuals(named: Iterable[tuple[str, Subscription]], filters: Iterable[CFilter], allowed: bool) -> None:
    for (label, _), made in zip(named, filters, strict=True):
        if made.reasons and not allowed:
            part, reason = next(iter(made.reasons.items()))
            raise DeviceError(
                f"{label}: {made.subscription}: a device cannot test {part}: {reason}; change it, or leave it to the "
                "handler, by residual (--residual)"
            )


def _handlers(
    name: str,
    named: Sequence[tuple[str, Subscription]],
    filters: Sequence[CFilter],
    families: Mapping[str, DeviceFamily],
    catalog: Catalog,
) -> Iterable[Handler]:
    for number, ((label, asked), made) in enumerate(zip(named, filters, strict=True)):
        matching = [family for family, found in made.tests.items() if not found.condition.never]
        base = f"{name}_on_{snake_case(label)}"
        plain = [base if len(matching) == 1 else f"{base}_{families[family].label}" for family in matching]
        codes = {name_of(cls): catalog.code(cls) for cls in asked.types}
        yield Handler(number, dict(zip(matching, plain, strict=True)), label, made, codes)


def _acceptance(subscriptions: list[Subscription], catalog: Catalog, banks: int | None) -> tuple[can.Pair, ...]:
    if not subscriptions:
        return ()
    if banks is not None:
        return can.fit_bank(subscriptions, catalog, banks=banks).pairs
    exact = [pair for asked in subscriptions for pair in can.compile(asked, catalog).pairs]
    return condense(exact)


def _check_receivable(program: Program) -> None:
    """Raise DeviceError if subscriptions match nothing, or there are more types than numbers for them."""
    if program.handlers and not program.received_families:
        raise DeviceError(
            "no subscription can match an event of a type that has an event tag; see what `explain` says of each"
        )
    if len(program.classes) + program.late > MAX_NUMBERS:
        raise DeviceError(
            f"{len(program.classes)} types and {program.late} that are learnt are more than {MAX_NUMBERS}; subscribe "
            "to fewer types, or learn fewer (late)"
        )


def _check_publishable(program: Program) -> None:
    """Raise DeviceError if a published type requires an attribute that is not kept, or that a device cannot write."""
    for cls in program.classes:
        if cls.name in program.published:
            members = program.families[cls.family].layout
            held = {member.name for member in members.held}
            kept = {name for name, member in members.members.items() if member.name in held}
            required = [
                each.name
                for each, field in zip(members.vector, cls.fields, strict=True)
                if field.required and each.name not in kept
            ]
            types = {each.name: each.type for each in members.vector}
            if lists := [name for name in required if isinstance(types[name], OpaqueType)]:
                raise DeviceError(
                    f"{cls.name} requires {', '.join(lists)}: a device cannot write lists and nested structs, so it "
                    "cannot publish it; make the attribute optional (Maybe), or use several numbers or bytes instead"
                )
            if required:
                raise DeviceError(
                    f"{cls.name} requires {', '.join(required)}, which the device does not keep, so it cannot publish "
                    "it; keep it, too (keep, --keep)"
                )
