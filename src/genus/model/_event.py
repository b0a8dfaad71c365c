"""`Event` and `Kind`: how event types are declared, and what is refused when a class is created.

Events are msgspec structs: frozen, keyword-only, without a dictionary and outside the garbage collector, which makes
them cheap to decode, compare and hash. `_unread` gives them a slot for values that this process cannot read. Creating
one in Python goes through a function that names what is given wrongly and makes values plain, which takes longer. The
metaclass checks the rules that keep codes and vectors prefix-stable: fields come from one base only, and an attribute
name has one type within its family.
"""

import sys
import types
import typing
from collections.abc import Callable, Iterable, Mapping, Sequence
from copy import copy
from datetime import datetime
from keyword import iskeyword
from typing import Annotated, Any, NoReturn, TypeAlias, TypeVar

import msgspec

from genus.errors import DeclarationError, EventError, did_you_mean, some_names
from genus.model._declared import add_declared, class_before, declaration, define_again, warn_replaced
from genus.model._plain import UNCHANGED, plain_value
from genus.model._types import (
    INT64_MAX,
    INT64_MIN,
    IntType,
    TimeType,
    former_names,
    is_bounded,
    read_annotation,
    with_one_bound,
)
from genus.model._values import UnreadSlot, describe_value, is_valid
from genus.model._vector import RETYPABLE, Attribute, Family, Vector, own_first

T = TypeVar("T")
_FIELD: Any = type(msgspec.field(default=0))
INT64 = msgspec.Meta(ge=INT64_MIN, le=INT64_MAX)

create_event: Any = msgspec.StructMeta.__call__
"""Create an event of a class, `create_event(cls, lane=2)`, from values that are plain: decoders need no more."""

_CONFIG: Mapping[str, Any] = {"frozen": True, "omit_defaults": True, "gc": False, "forbid_unknown_fields": True}
"""Options of `Event`, which all event types inherit. Unknown names must not vanish: decoders count them."""

Maybe: TypeAlias = T | None
"""`Maybe[T]`: the annotation of an attribute that may be absent. Absent is `None`, which is the default value."""

RESERVED_WORDS = frozenset(
    {"and", "or", "not", "in", "is", "between", "startswith", "endswith", "contains", "present", "absent"}
    | {"true", "false", "inf", "exact", "has", "lacks", "where", "this"}
)
"""Keywords of the subscription text; no attribute may have one as its name."""

MAX_TAGGED = 8
"""The largest number of tagged attributes of a family: each doubles the event tags that every type takes."""


def is_attribute_name(name: str) -> bool:
    """Whether an attribute may have this name: an identifier that is no keyword of Python or of subscription texts.

    >>> [is_attribute_name(name) for name in ("speed", "from", "where", "_x", "a b")]
    [True, False, False, False, False]
    """
    return name.isidentifier() and not iskeyword(name) and not name.startswith("_") and name not in RESERVED_WORDS


def _label(name: str, options: dict[str, Any]) -> str:
    label = options.pop("name", name)
    if options:
        raise DeclarationError(
            f"{name} takes no option {', '.join(options)}; only name= may be given, and tagged= to the root of a family"
        )
    if not isinstance(label, str) or not all(part.isidentifier() for part in label.split(".")):
        raise DeclarationError(f"{name} cannot be named {label!r}; use letters, digits and _ in parts joined by dots")
    if label in RESERVED_WORDS or (label in ("Event", "Kind") and "Event" in globals()):
        raise DeclarationError(f"the name {label!r} is reserved; choose another, or give one by name=")
    return label


def _state_base(name: str, bases: tuple[type, ...]) -> type | None:
    events = [base for base in bases if isinstance(base, EventMeta)]
    if len(events) > 1:
        raise DeclarationError(
            f"{name} derives from {' and '.join(base.__name__ for base in events)}: attributes may come from one base "
            "only. Keep the one whose attributes it extends and make the others kinds (class X(Kind))"
        )
    own = (msgspec.Struct, UnreadSlot)
    if others := [base.__name__ for base in bases if not isinstance(base, KindMeta) and base not in own]:
        raise DeclarationError(f"{name} derives from {', '.join(others)}; derive from Event and kinds only")
    if events and bases[0] is not events[0]:
        raise DeclarationError(f"{name} must name {events[0].__name__} before its kinds")
    return events[0] if events else None


def _annotations(name: str, namespace: dict[str, Any], frame: types.FrameType) -> dict[str, object]:
    notes: dict[str, object] = namespace.get("__annotations__") or _deferred_annotations(namespace)
    resolved = {field: _resolve(f"{name}.{field}", note, frame) for field, note in notes.items()}
    return {field: note for field, note in resolved.items() if not _is_class_variable(note)}


def _is_class_variable(note: object) -> bool:
    return note is typing.ClassVar or typing.get_origin(note) is typing.ClassVar


def _deferred_annotations(namespace: dict[str, Any]) -> dict[str, object]:
    if sys.version_info >= (3, 14):
        import annotationlib

        annotate = annotationlib.get_annotate_from_class_namespace(namespace)
        return annotationlib.call_annotate_function(annotate, annotationlib.Format.VALUE) if annotate else {}
    return {}


def _resolve(where: str, note: object, frame: types.FrameType) -> object:
    if not isinstance(note, str):
        return note
    try:
        return eval(note, frame.f_globals, dict(frame.f_locals))
    except Exception as problem:
        raise DeclarationError(f"{where} has the annotation {note!r}, which cannot be read: {problem}") from None


def _attribute(owner: str, name: str, note: object) -> Attribute:
    if not is_attribute_name(name):
        why = "private to Genus" if name.startswith("_") else "a keyword of the subscription text or of Python"
        raise DeclarationError(f"{owner}.{name}: the name {name!r} is reserved ({why}); choose another")
    try:
        type_, optional, unit = read_annotation(note)
    except DeclarationError as problem:
        raise DeclarationError(f"{owner}.{name} {problem}") from None
    return Attribute(name, type_, optional, unit).with_names(_check_former(owner, name, former_names(note)))


def _check_former(owner: str, name: str, former: tuple[str, ...]) -> tuple[str, ...]:
    if wrong := [old for old in former if old == name or not is_attribute_name(old)]:
        why = "its present name" if wrong[0] == name else "no name of an attribute"
        raise DeclarationError(f"{owner}.{name} is renamed from {wrong[0]!r}, which is {why}; give its former name")
    return former


def decoder_annotation(attribute: Attribute, note: object) -> object:
    """Return the annotation that msgspec decodes by: a plain int has 64 bits, a time has a time zone."""
    strict = {IntType(): Annotated[int, INT64], TimeType(): Annotated[datetime, msgspec.Meta(tz=True)]}
    found: Any = strict.get(attribute.type)
    if found is None or is_bounded(note):
        return with_one_bound(note)
    return found | None if attribute.optional else found


def _family(label: str, base: type | None, declared: Sequence[Attribute]) -> Family | None:
    if base is None:
        return None
    family: Family | None = vars(base)["__genus_family__"]
    if family is not None:
        return family
    context: tuple[Attribute, ...] = vars(base)["__genus_attributes__"]
    retyped = {each.name: each for each in declared if each.name in RETYPABLE and isinstance(each.type, IntType)}
    return Family(label, Vector(label, tuple(retyped.get(each.name, each) for each in context)))


def _retyped(family: Family | None) -> frozenset[str]:
    """Return the attributes of `Event` that have another type in a family."""
    if family is None:
        return frozenset()
    return frozenset(each.name for each in family.vector if each.name in RETYPABLE and isinstance(each.type, IntType))


def _check_tagged(name: str, names: object, base: type | None, attributes: Sequence[Attribute]) -> tuple[str, ...]:
    """Return the tagged attributes as names: optional attributes of a family's root, at most MAX_TAGGED, each once."""
    tagged = tuple(names) if isinstance(names, list | tuple) else (names,)
    if not tagged:
        return ()
    if base is None or vars(base)["__genus_family__"] is not None:
        raise DeclarationError(
            f"{name} cannot have tagged=: event tags are laid out for a whole family; give it to the class of the "
            "family that is directly below Event"
        )
    optional = {attribute.name: attribute.optional for attribute in attributes}
    checked = tuple(_check_taggable(name, each, optional) for each in tagged)
    if len(checked) > MAX_TAGGED or len(set(checked)) < len(checked):
        raise DeclarationError(f"{name} has tagged={checked!r}; name up to {MAX_TAGGED} attributes, each once")
    return checked


def _check_taggable(owner: str, name: object, optional: Mapping[str, bool]) -> str:
    if not isinstance(name, str) or name not in optional:
        raise DeclarationError(
            f"{owner} has {name!r} in tagged=, which is no attribute of it; its attributes are {', '.join(optional)}"
        )
    if not optional[name]:
        raise DeclarationError(
            f"{owner} has {name!r} in tagged=, but every event of it carries {name}, so its presence says nothing; "
            "leave it out, or make it Maybe[...]"
        )
    return name


def _check_narrowing(owner: str, attribute: Attribute, base: type | None) -> None:
    above = {a.name: a for a in getattr(base, "__genus_attributes__", ())}.get(attribute.name)
    if above is not None and attribute.optional and not above.optional:
        raise DeclarationError(
            f"{owner}.{attribute.name} may be absent, but {base.__name__ if base else ''} always carries it; "
            "a subtype may require more, never less"
        )


class MissingAttribute(EventError, msgspec.ValidationError):
    """An event was created or decoded without an attribute that its type requires."""


def _set_default(owner: str, attribute: Attribute, note: object, namespace: dict[str, Any]) -> None:
    """Set the default of a declared attribute: None if it is optional and has no other.

    DeclarationError if the attribute may not have it; what a function returns is not tested. msgspec does not encode a
    value that equals its default, unless the default comes from a function. A reader might have another default, so
    every default but None becomes a function.
    """
    if attribute.optional:
        namespace.setdefault(attribute.name, None)
    default = namespace.get(attribute.name, msgspec.NODEFAULT)
    factory: Any = None
    if isinstance(default, _FIELD):
        if default.name is not None:
            raise DeclarationError(f"{owner}.{attribute.name} cannot have another name on the wire")
        default, factory = default.default, default.default_factory
    if factory is not None and factory is not msgspec.NODEFAULT:
        namespace[attribute.name] = msgspec.field(default_factory=lambda: factory())
    elif default is msgspec.NODEFAULT:
        namespace.pop(attribute.name, None)
    elif default is not None or not attribute.optional:
        default = plain_value(default)
        if default is None or not is_valid(attribute, decoder_annotation(attribute, note), default):
            wrong = describe_value(owner, attribute, note, default).message.replace(" is ", " has the default ", 1)
            raise DeclarationError(wrong + ("; write Maybe[...] if it may be absent" if default is None else ""))
        namespace[attribute.name] = msgspec.field(default_factory=lambda: copy(default))


def _set_required(name: str, base: type | None, own: Mapping[str, object], namespace: dict[str, Any]) -> None:
    """Set a default that raises MissingAttribute for every attribute without a default.

    msgspec's own error does not name the class. Inherited attributes are declared again, with the same annotation, so
    that the error names the class that was called and not the one it derives from.
    """
    inherited: dict[str, object] = getattr(base, "__genus_required__", {})
    required = {field: note for field, note in {**inherited, **own}.items() if field not in namespace}
    namespace["__genus_required__"] = required
    for field, note in required.items():
        namespace["__annotations__"].setdefault(field, note)
        namespace[field] = msgspec.field(default_factory=_raise_missing(name, field, required))


def _raise_missing(name: str, field: str, required: Iterable[str]) -> Callable[[], NoReturn]:
    """Return a function that raises MissingAttribute for an attribute."""
    message = f"{name} requires {', '.join(required)}, but {field!r} was not given"

    def fail() -> NoReturn:
        raise MissingAttribute(message)

    return fail


def _describe_misuse(cls: type, args: tuple[object, ...], given: Iterable[str]) -> str | None:
    """Return what is wrong with a call: attributes that are not given by name, or one that the class does not have."""
    names = own_first(each.name for each in vars(cls)["__genus_attributes__"])
    if args:
        example = ", ".join(f"{name}={value!r}" for name, value in zip(names, args, strict=False))
        return f"{cls.__name__} takes its attributes by name: write {cls.__name__}({example})"
    for name in given:
        if name not in names:
            hint = did_you_mean(name, names)
            return f"{cls.__name__} has no attribute {name!r}; {hint}its attributes are {some_names(names)}"
    return None


def _override(inherited: tuple[Attribute, ...], declared: tuple[Attribute, ...]) -> tuple[Attribute, ...]:
    """The attributes of a class: the inherited ones, replaced where they are declared again, then the new ones."""
    narrowed = {attribute.name: attribute for attribute in declared}
    kept = tuple(narrowed.pop(attribute.name, attribute) for attribute in inherited)
    return (*kept, *narrowed.values())


class KindMeta(type):
    """The metaclass of kinds: classes without attributes that serve as interfaces of event types."""

    def __new__(mcls, name: str, bases: tuple[type, ...], namespace: dict[str, Any], /, **options: Any) -> Any:
        """Create a kind; DeclarationError if it has attributes or a base that is not a kind."""
        frame = sys._getframe(1)
        if fields := [field for field in _annotations(name, namespace, frame) if not field.startswith("_")]:
            raise DeclarationError(
                f"kind {name} declares {', '.join(fields)}, but a kind has no attributes; "
                "derive from Event to carry attributes, or keep only methods and properties"
            )
        if others := [base.__name__ for base in bases if not isinstance(base, KindMeta)]:
            raise DeclarationError(f"kind {name} derives from {', '.join(others)}, which is no kind")
        label = _label(name, options)
        declared = declaration(label, bases, {}, namespace, ())
        before = class_before(name, namespace, frame)
        if before is not None and define_again(before, declared, namespace):
            return before
        namespace.setdefault("__slots__", ())
        namespace |= {"__genus_name__": label, "__genus_declaration__": declared}
        cls = super().__new__(mcls, name, bases, namespace)
        add_declared(label, cls)
        if before is not None:
            warn_replaced(before, declared)
        return cls


class Kind(metaclass=KindMeta):
    """An event type without attributes, used as an interface; an event type may have several.

    Subscribing to a kind delivers the events of all types that have it. A kind has no events of its own: creating an
    instance raises EventError.

    >>> class Roadside(Kind):
    ...     "Anything that stands beside a road."
    >>> class Loop(Event, Roadside):
    ...     lane: int
    >>> issubclass(Loop, Roadside)
    True
    """

    if not typing.TYPE_CHECKING:  # type checkers would take it for the constructor of event types

        def __new__(cls, *_: object, **__: object) -> NoReturn:
            """Raise EventError: only event types have instances."""
            known = [each.__name__ for each in type.__subclasses__(cls) if isinstance(each, EventMeta)]
            example = known[0] if known else f"class X(Event, {cls.__name__})"
            raise EventError(
                f"{cls.__name__} is a kind and has no events of its own; create an event of a type that has this "
                f"kind, such as {example}"
            )


@typing.dataclass_transform(kw_only_default=True, frozen_default=True, field_specifiers=(msgspec.field,))
class EventMeta(msgspec.StructMeta, KindMeta):
    """The metaclass of event types; checks that a class fits its base and its family."""

    def __new__(
        mcls,
        name: str,
        bases: tuple[type, ...],
        namespace: dict[str, Any],
        /,
        *,
        tagged: Sequence[str] = (),
        **options: Any,
    ) -> Any:
        """Create an event type; DeclarationError says what to change if it cannot be one."""
        if "Event" not in globals():
            options.pop("kw_only")  # which only type checkers need to be told, for the attributes of Event itself
        label = _label(name, options)
        base = _state_base(name, bases)
        frame = sys._getframe(1)
        notes = _annotations(name, namespace, frame)
        namespace["__genus_declaration__"] = said = declaration(label, bases, notes, namespace, tagged)
        before = class_before(name, namespace, frame)
        if before is not None and define_again(before, said, namespace):
            return before
        declared = tuple(_attribute(name, field, note) for field, note in notes.items())
        family = _family(label, base, declared)
        if family is not None and family.stated:
            family.declare(declared)
        for attribute in declared:
            _check_narrowing(name, attribute, base)
            if family is not None:
                family.check(name, attribute, is_again=before is not None)
            _set_default(name, attribute, notes[attribute.name], namespace)
        if family is not None:
            family.check_names(name, declared)
            declared = tuple(map(family.complete, declared))
        own = {a.name: decoder_annotation(a, notes[a.name]) for a in declared}
        namespace["__annotations__"] = dict(own)
        _set_required(name, base, own, namespace)
        inherited = getattr(base, "__genus_attributes__", ())
        namespace["__genus_name__"] = label
        namespace["__genus_attributes__"] = all_attributes = _override(inherited, declared)
        namespace["__genus_family__"] = family
        namespace["__genus_retyped__"] = _retyped(family)
        names = _check_tagged(name, tagged, base, all_attributes)
        config = _CONFIG if base is None else {}
        cls = msgspec.StructMeta.__new__(mcls, name, bases, namespace, kw_only=True, **config)
        if family is not None:
            family.append_new(declared)
            family.tagged = names or family.tagged
        add_declared(label, cls)
        if before is not None:
            warn_replaced(before, said)
        return cls

    def __setattr__(cls, name: str, value: object) -> None:
        if name == "__dataclass_params__":
            raise DeclarationError(f"{cls.__name__} is an event type and needs no @dataclass; leave that out")
        super().__setattr__(name, value)

    if not typing.TYPE_CHECKING:  # type checkers would take it for the constructor of event types

        def __call__(cls, /, *args: object, **given: object) -> "Event":
            """Create an event with plain values; EventError names what is given wrongly."""
            for value in given.values():
                if value.__class__ not in UNCHANGED:
                    given = {name: plain_value(value) for name, value in given.items()}
                    break
            if args:
                raise EventError(_describe_misuse(cls, args, given))
            try:
                return create_event(cls, **given)
            except TypeError:
                if (wrong := _describe_misuse(cls, args, given)) is None:
                    raise
                raise EventError(wrong) from None


@typing.dataclass_transform(kw_only_default=True, frozen_default=True, field_specifiers=(msgspec.field,))
class Event(UnreadSlot, msgspec.Struct, metaclass=EventMeta, kw_only=True):
    """The root of all event types, with the context and quality attributes every event may carry.

    Derive from it and annotate the attributes; `Maybe[T] = None` marks one that may be absent. Events are frozen,
    keyword-only and compare by value. Leaving out a required attribute, or giving one that the class does not have,
    raises EventError. Scalars of numpy and pandas become plain Python values. Values are not checked when an event is
    created in Python (type checkers do that); they are checked when an event is decoded, and by `genus.check`. A
    default is checked where it is written: DeclarationError.

    Class options: `name=` is the type's name in catalogs, recordings and subscription texts. `tagged=` names up to
    eight optional attributes, in a class directly below `Event` only; on a CAN bus their presence bits are then part
    of the event tag, for the class and all its subtypes, and controllers filter on them.

    A class directly below `Event` may declare `source` again as an integer (`source: UInt8`), where nodes have numbers.
    Subscriptions to `Event` and to kinds, for which `source` is text, then see its events as without a source.

    >>> from genus import Maybe
    >>> class Loop(Event):
    ...     lane: int
    ...     category: Maybe[str] = None
    >>> Loop(lane=2, place="A8/km31")
    Loop(place='A8/km31', lane=2)
    """

    time: Maybe[datetime] = None
    source: Maybe[str] = None
    place: Maybe[str] = None
    deadline: Maybe[datetime] = None
    expires: Maybe[datetime] = None

    def __repr__(self) -> str:
        present = ((a.name, getattr(self, a.name)) for a in self.__genus_attributes__)  # type: ignore[attr-defined]
        return f"{type(self).__name__}({', '.join(f'{name}={v!r}' for name, v in present if v is not None)})"
