"""Micro-controllers: a subscription as conditions in C99, without floating point.

`compile` translates one subscription; `genus.devices.generate` makes whole programs of many, with codec and dispatch.
"""

from collections.abc import Iterator, Mapping, Sequence

import msgspec

import genus.filters.internal as x
from genus.catalog import Catalog
from genus.filters import Subscription
from genus.filters.internal import conjuncts, rebuild
from genus.filters.types import AllOf
from genus.targets._presence import registered_types
from genus.targets.c._compiler import CCompiler, Constants, Member, NotOnDevice
from genus.targets.c._condition import ALWAYS, NEVER, Condition, all_of_these, flash_of, present, runtime_flash
from genus.targets.c._layout import EventLayout, layouts_of

__all__ = ["CFilter", "CTest", "compile"]


class CTest(msgspec.Struct, frozen=True):
    """What is tested of the events of one family; made by `compile`.

    `types` are the types of the family that conform, which a device knows by their event tags. `attributes` and
    `contents` are the conditions for these, `variables` those that the code of `contents` sets, and `constants` the
    texts it compares with, as definitions in C.
    """

    family: str
    types: tuple[str, ...]
    attributes: Condition
    contents: Condition
    variables: tuple[str, ...] = ()
    constants: tuple[str, ...] = ()

    @property
    def condition(self) -> Condition:
        """Attributes and contents."""
        return all_of_these([self.attributes, self.contents])


class CFilter(msgspec.Struct, frozen=True):
    """A subscription in C; made by `compile`.

    `tests` has one for each family that events may be of, by its name. `residual` is what the program must still test,
    None if nothing, and `reasons` says why, for each part of it.
    """

    subscription: Subscription
    tests: Mapping[str, CTest]
    residual: Subscription | None
    reasons: Mapping[str, str] = {}

    @property
    def flash(self) -> int:
        """About how many bytes of flash the conditions take on an 8-bit processor, with what they call."""
        conditions = [test.condition for test in self.tests.values() if not test.condition.never]
        return sum(map(flash_of, conditions)) + runtime_flash(" ".join(each.code() for each in conditions))

    def explain(self) -> str:
        """Return the conditions of each family, and what is left to the program, as text."""
        lines = [f"c: {self.subscription}"]
        for tested in self.tests.values():
            lines.append(f"  type: {', '.join(tested.types)}, by the event tag")
            lines.append(f"  attributes: {_describe(tested.attributes)}")
            lines.append(f"  contents: {_describe(tested.contents)}")
            lines += [f"    {line}" for line in tested.constants]
        lines += [] if self.tests else ["  no type of the catalog can match"]
        lines.append(f"  residual: {self.residual or 'nothing'}")
        lines += [f"  flash: about {self.flash} bytes for these tests; RAM: none"] if self.tests else []
        return "\n".join([*lines, *(f"    {part}: {reason}" for part, reason in self.reasons.items())])


def compile(
    subscription: Subscription,
    catalog: Catalog,
    layouts: Mapping[str, EventLayout] | None = None,
    constants: Constants | None = None,
) -> CFilter:
    """Compile a subscription to conditions in C, for the types of a catalog as it is now.

    In the code `e` is a pointer to the event. Raises NotRegistered if a type is not in the catalog. A device that keeps
    only some attributes gives its own `layouts`, without families that it does not know, and one for many subscriptions
    shares `constants`.

    >>> from genus import Event, Maybe, Subscription, this
    >>> from genus.catalog import Catalog
    >>> from genus.model import Float32, UInt8
    >>> class Loop(Event):
    ...     lane: UInt8
    ...     speed: Maybe[Float32] = None
    >>> catalog = Catalog()
    >>> added = catalog.register(Loop)
    >>> print(compile(Subscription(Loop, has="place", where=(this.lane > 1) & (this.speed > 30)), catalog).explain())
    c: Loop has place where lane > 1 and speed > 30.0
      type: Loop, by the event tag
      attributes: ((e->present[0] & 0x04U) != 0U)
      contents: ((e->present[0] & 0x60U) == 0x60U) && (e->lane >= 2U) && genus_within32(genus_key32(e->speed), \
1106247681L, 2139095040L)
      residual: nothing
      flash: about 76 bytes for these tests; RAM: none
    """
    layouts = layouts_of(catalog) if layouts is None else layouts
    shared = Constants() if constants is None else constants
    types, decided = conforming_types(subscription, catalog)
    by_family: dict[str, list[str]] = {}
    for name in types:
        if catalog.vector(name).scope in layouts:
            by_family.setdefault(catalog.vector(name).scope, []).append(name)
    tests: dict[str, CTest] = {}
    left: dict[x.Predicate, str] = {}
    for family, names in by_family.items():
        members = layouts[family].members_for(subscription)
        tests[family] = _compile_family(subscription, family, names, members, shared, left)
        if constants is None:
            used = shared.definitions(tests[family].condition.code())
            tests[family] = msgspec.structs.replace(tests[family], constants=tuple(used))
    reasons = {x.format_expression(part): reason for part, reason in left.items()}
    return CFilter(subscription, tests, _residual(subscription, tuple(left), decided), reasons)


def _compile_family(
    subscription: Subscription,
    family: str,
    types: Sequence[str],
    members: Mapping[str, Member],
    constants: Constants,
    left: dict[x.Predicate, str],
) -> CTest:
    """Return the test of one family; parts that cannot be tested are added to `left`, with the reason."""
    compiler = CCompiler(members, constants)
    attributes = all_of_these(_presence(subscription, members))
    contents: list[Condition] = []
    for part in conjuncts(subscription.where):
        try:
            contents.append(compiler.visit(part, True))
        except NotOnDevice as problem:
            left[part] = str(problem)
    return CTest(family, tuple(types), attributes, all_of_these(contents), tuple(compiler.variables))


def _presence(subscription: Subscription, members: Mapping[str, Member]) -> Iterator[Condition]:
    wanted = {**dict.fromkeys(subscription.has, True), **dict.fromkeys(subscription.lacks, False)}
    for name, here in wanted.items():
        member = members.get(name)
        yield present(member.number, here) if member is not None else NEVER if here else ALWAYS


def conforming_types(subscription: Subscription, catalog: Catalog) -> tuple[tuple[str, ...], bool]:
    """All types of a catalog whose events can match, and whether all of these conform."""
    if subscription.exact:
        return registered_types(subscription, catalog)
    wanted = [catalog.code(cls) for cls in subscription.types]
    entries = catalog.entries.items()
    return tuple(
        name for name, each in entries if not each.kind and all(each.code % code == 0 for code in wanted)
    ), True


def _residual(subscription: Subscription, parts: Sequence[x.Predicate], decided: bool) -> Subscription | None:
    if decided and not parts:
        return None
    where = None if not parts else parts[0] if len(parts) == 1 else x.And(tuple(parts))
    return rebuild(AllOf(subscription.types), exact=subscription.exact, where=where)


def _describe(condition: Condition) -> str:
    return "nothing to test" if condition.always else condition.code()
