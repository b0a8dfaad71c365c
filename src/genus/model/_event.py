"""`Event` and `Kind`: how event types are declared, and what is refused when a class is created.

Events are msgspec structs: frozen, keyword-only, without a dictionary and outside the garbage collector, which makes
them several times cheaper to create than dataclasses. The metaclass checks the rules that keep codes and vectors
prefix-stable: fields come from one base only, and an attribute name has one type within its family.
"""

import sys
import types
import typing
from collections.abc import Mapping, Sequence
from copy import copy
from datetime import datetime
from keyword import iskeyword
from typing import Annotated, Any, TypeAlias, TypeVar

import msgspec

from genus.errors import DeclarationError
from genus.model._signature import Attribute, Family, Vector, is_type
from genus.model._types import INT64_MAX, INT64_MIN, IntType, TimeType, is_bounded, read_annotation

T = TypeVar("T")
_FIELD: Any = type(msgspec.field(default=0))
INT64 = msgspec.Meta(ge=INT64_MIN, le=INT64_MAX)

Maybe: TypeAlias = T | None
"""`Maybe[T]`: an attribute that may be absent. Absent is `None`, and that is the default unless another is given."""

RESERVED = frozenset(
    {"and", "or", "not", "in", "is", "between", "startswith", "endswith", "contains", "present", "absent"}
    | {"true", "false", "inf", "exact", "has", "lacks", "where", "this"}
)
"""Words of the subscription text; no attribute may have one as its name."""

MOST_TAGGED = 8
"""More attributes than this a family cannot have in its event tags: each doubles the tags that every type takes."""


def is_attribute_name(name: str) -> bool:
    """Whether an attribute may have this name: an identifier that is no word of Python or of subscription texts.

    >>> [is_attribute_name(name) for name in ("speed", "from", "where", "_x", "a b")]
    [True, False, False, False, False]
    """
    return name.isidentifier() and not iskeyword(name) and not name.startswith("_") and name not in RESERVED


def _label(name: str, options: dict[str, Any]) -> str:
    label = options.pop("name", name)
    if options:
        raise DeclarationError(
            f"{name} takes no option {', '.join(options)}; only name= may be given, and tagged= to the root of a family"
        )
    if not isinstance(label, str) or not all(part.isidentifier() for part in label.split(".")):
        raise DeclarationError(f"{name} cannot be named {label!r}; use letters, digits and _ in parts joined by dots")
    if label in RESERVED or (label in ("Event", "Kind") and "Event" in globals()):
        raise DeclarationError(f"the name {label!r} is reserved; choose another, or give one by name=")
    return label


def _state_base(name: str, bases: tuple[type, ...]) -> type | None:
    events = [base for base in bases if isinstance(base, EventMeta)]
    if len(events) > 1:
        raise DeclarationError(
            f"{name} derives from {' and '.join(base.__name__ for base in events)}: attributes may come from one base "
            "only. Keep the one whose attributes it extends and make the others kinds (class X(Kind))"
        )
    if strangers := [base.__name__ for base in bases if not is_type(base) and base is not msgspec.Struct]:
        raise DeclarationError(f"{name} derives from {', '.join(strangers)}; derive from Event and kinds only")
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


def _resolve(place: str, note: object, frame: types.FrameType) -> object:
    if not isinstance(note, str):
        return note
    try:
        return eval(note, frame.f_globals, dict(frame.f_locals))
    except Exception as problem:
        raise DeclarationError(f"{place} has the annotation {note!r}, which cannot be read: {problem}") from None


def _attribute(owner: str, name: str, note: object) -> Attribute:
    if not is_attribute_name(name):
        why = "private to Genus" if name.startswith("_") else "a word of the subscription text or of Python"
        raise DeclarationError(f"{owner}.{name}: the name {name!r} is reserved ({why}); choose another")
    try:
        type_, optional, unit = read_annotation(note)
    except DeclarationError as problem:
        raise DeclarationError(f"{owner}.{name} {problem}") from None
    return Attribute(name, type_, optional, unit)


def _constrained(attribute: Attribute, note: object) -> object:
    """The annotation msgspec decodes by: a plain int has 64 bits, a time has a zone."""
    strict = {IntType(): Annotated[int, INT64], TimeType(): Annotated[datetime, msgspec.Meta(tz=True)]}
    found: Any = strict.get(attribute.type)
    if found is None or is_bounded(note):
        return note
    return found | None if attribute.optional else found


def _family(label: str, base: type | None) -> Family | None:
    if base is None:
        return None
    family: Family | None = vars(base)["__genus_family__"]
    return family or Family(label, Vector(label, vars(base)["__genus_attributes__"]))


def _tagged(name: str, names: object, base: type | None, attributes: Sequence[Attribute]) -> tuple[str, ...]:
    """The attributes whose presence event tags tell: optional ones of a family's root, few, each once."""
    tagged = tuple(names) if isinstance(names, list | tuple) else (names,)
    if not tagged:
        return ()
    if base is None or vars(base)["__genus_family__"] is not None:
        raise DeclarationError(
            f"{name} cannot have tagged=: event tags are laid out for a whole family; give it to the class of the "
            "family that is directly below Event"
        )
    optional = {attribute.name: attribute.optional for attribute in attributes}
    checked = tuple(_taggable(name, each, optional) for each in tagged)
    if len(checked) > MOST_TAGGED or len(set(checked)) < len(checked):
        raise DeclarationError(f"{name} has tagged={checked!r}; name up to {MOST_TAGGED} attributes, each once")
    return checked


def _taggable(owner: str, name: object, optional: Mapping[str, bool]) -> str:
    if not isinstance(name, str) or name not in optional:
        raise DeclarationError(
            f"{owner} has {name!r} in tagged=, which is no attribute of it; its attributes are {', '.join(optional)}"
        )
    if not optional[name]:
        raise DeclarationError(
            f"{owner} has {name!r} in tagged=, but every event of it carries {name}, so there is nothing to tell; "
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


def _settle_default(owner: str, attribute: Attribute, namespace: dict[str, Any]) -> None:
    """Absent is the default of an optional attribute; any other is written out, never left to the reader.

    msgspec leaves out a value that is the default, but for those that a function makes: so every other default becomes
    a function.
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
    elif default is not None and default is not msgspec.NODEFAULT:
        namespace[attribute.name] = msgspec.field(default_factory=lambda: copy(default))


def _override(inherited: tuple[Attribute, ...], declared: tuple[Attribute, ...]) -> tuple[Attribute, ...]:
    narrowed = {attribute.name: attribute for attribute in declared}
    kept = tuple(narrowed.pop(attribute.name, attribute) for attribute in inherited)
    return (*kept, *narrowed.values())


class KindMeta(type):
    """Makes a kind: a class without fields that event types take on as an interface."""

    def __new__(mcls, name: str, bases: tuple[type, ...], namespace: dict[str, Any], /, **options: Any) -> Any:
        """Refuse fields, and anything that is not a kind among the bases."""
        if fields := [field for field in _annotations(name, namespace, sys._getframe(1)) if not field.startswith("_")]:
            raise DeclarationError(
                f"kind {name} declares {', '.join(fields)}, but a kind has no attributes; "
                "derive from Event to carry attributes, or keep only methods and properties"
            )
        if strangers := [base.__name__ for base in bases if not isinstance(base, KindMeta)]:
            raise DeclarationError(f"kind {name} derives from {', '.join(strangers)}, which is no kind")
        namespace.setdefault("__slots__", ())
        namespace["__genus_name__"] = _label(name, options)
        return super().__new__(mcls, name, bases, namespace)


class Kind(metaclass=KindMeta):
    """An event type without attributes, used as an interface; a class may have several.

    >>> class Roadside(Kind):
    ...     "Anything that stands beside a road."
    """


@typing.dataclass_transform(kw_only_default=True, frozen_default=True, field_specifiers=(msgspec.field,))
class EventMeta(msgspec.StructMeta, KindMeta):
    """Makes an event type, checking that it fits its base and its family."""

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
        """Read the annotations, refuse what could not mean the same everywhere, and create the struct."""
        label = _label(name, options)
        base = _state_base(name, bases)
        notes = _annotations(name, namespace, sys._getframe(1))
        declared = tuple(_attribute(name, field, note) for field, note in notes.items())
        family = _family(label, base)
        for attribute in declared:
            _check_narrowing(name, attribute, base)
            if family is not None:
                family.check(name, attribute)
            _settle_default(name, attribute, namespace)
        namespace["__annotations__"] = {a.name: _constrained(a, notes[a.name]) for a in declared}
        inherited = getattr(base, "__genus_attributes__", ())
        namespace["__genus_name__"] = label
        namespace["__genus_attributes__"] = carried = _override(inherited, declared)
        namespace["__genus_family__"] = family
        names = _tagged(name, tagged, base, carried)
        config: dict[str, Any] = {"frozen": True, "omit_defaults": True, "gc": False} if base is None else {}
        cls = msgspec.StructMeta.__new__(mcls, name, bases, namespace, kw_only=True, **config)
        if family is not None:
            family.admit(declared)
            family.tagged = names or family.tagged
        return cls


@typing.dataclass_transform(kw_only_default=True, frozen_default=True, field_specifiers=(msgspec.field,))
class Event(msgspec.Struct, metaclass=EventMeta):
    """The root of all event types, with the context and quality attributes every event may carry.

    Derive from it and annotate the attributes; `Maybe[T] = None` marks one that may be absent. Events are frozen and
    compare by value. Values are not checked when an event is made in Python (type checkers do that); they are checked
    wherever an event comes in from outside, and by `genus.check`.

    A class directly below it may name up to eight of its optional attributes as `tagged`: on a CAN bus the event tag
    then tells which of them an event carries, for the class and all below it, and controllers filter on that.

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
