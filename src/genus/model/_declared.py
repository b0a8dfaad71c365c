"""The types declared so far, by name, and what becomes of a class that is defined again.

Classes are held weakly: one that nothing else refers to disappears.

A class is defined again in a notebook cell that is run twice, or by `importlib.reload`.
If the class statement declares what the class of that name declares already, it is that class, so that subscriptions,
catalogs and events made before and after fit together. Its methods and properties become those of the last definition.
If it declares something else, it is a new class, and DeclarationWarning says so.
"""

import types
import warnings
from collections.abc import Mapping
from typing import Any, get_args
from weakref import WeakSet, ref

import msgspec

from genus.errors import DeclarationWarning
from genus.model._plain import plain_value

_hidden: "WeakSet[type]" = WeakSet()
"""State: classes that are not found by their names, nor below others."""
_named: dict[str, dict["ref[type]", None]] = {}
"""State: the classes of each name, in the order of their declaration; added when a class is created."""


def add_declared(name: str, cls: type) -> None:
    """Remember a class that has just been created under the name of its type."""
    classes = _named.setdefault(name, {})
    classes[ref(cls, lambda dead: classes.pop(dead, None))] = None


def hide_declared(name: str, cls: type) -> None:
    """Let a class not be found: one that a simulation makes must not be taken for the program's own of its name."""
    _hidden.add(cls)
    _named[name].pop(ref(cls), None)


def is_hidden(cls: type) -> bool:
    """Return whether a class is not to be found."""
    return cls in _hidden


def declared_types(name: str) -> list[type]:
    """Return the event types and kinds of a name, in the order of their declaration; a program should have one."""
    return [cls for each in list(_named.get(name, ())) if (cls := each()) is not None]


_FIELD: Any = type(msgspec.field(default=0))
_NOT_MEMBERS = frozenset(
    {"__module__", "__qualname__", "__annotations__", "__annotate__", "__annotate_func__", "__slots__"}
    | {"__classcell__", "__doc__"}
)
_CLASS_METHODS = frozenset({"__init_subclass__", "__class_getitem__"})


class Declaration(msgspec.Struct, frozen=True, eq=False):
    """What a class statement declares besides methods and properties, and the names of these."""

    label: str
    bases: tuple[type, ...]
    notes: Mapping[str, object]
    defaults: Mapping[str, object]
    tagged: tuple[str, ...]
    members: frozenset[str]

    def difference(self, other: "Declaration") -> str | None:
        """Return what another declaration has differently, in words; None if nothing."""
        if self.label != other.label:
            return f"the name {other.label}"
        if self.bases != other.bases:
            before, now = (", ".join(base.__name__ for base in each) for each in (self.bases, other.bases))
            return f"the bases {now}" if now != before else "a base that was defined again"
        if self.tagged != other.tagged:
            return f"tagged={other.tagged!r}"
        for name in dict.fromkeys((*self.notes, *other.notes)):
            if name not in other.notes:
                return f"no attribute {name}"
            if name not in self.notes:
                return f"a new attribute {name}"
            if self.notes[name] != other.notes[name]:
                return _describe_note(name, self.notes[name], other.notes[name])
            if not _is_same_default(self.defaults.get(name), other.defaults.get(name)):
                return f"another default of {name}"
        return None


def _describe_note(name: str, before: object, now: object) -> str:
    """Return what is another about an annotation, which may look the same if a class in it was defined again."""
    parts = set(get_args(before))
    again = [each.__name__ for each in (now, *get_args(now)) if isinstance(each, type) and each not in parts]
    if repr(before) != repr(now) or not again:
        return f"another annotation of {name}"
    return f"an attribute {name} whose class {again[0]} was defined again"


def declaration(
    label: str, bases: tuple[type, ...], notes: Mapping[str, object], namespace: Mapping[str, Any], tagged: object
) -> Declaration:
    """Return what a class statement declares; `namespace` is that of its body, as it was written."""
    defaults = {name: namespace[name] for name in notes if name in namespace}
    members = frozenset(namespace) - frozenset(notes) - _NOT_MEMBERS
    tagged = tuple(tagged) if isinstance(tagged, list | tuple) else (tagged,)
    return Declaration(label, bases, dict(notes), defaults, tagged, members)


def class_before(name: str, namespace: Mapping[str, Any], frame: types.FrameType) -> type | None:
    """Return the class that a class statement of a module replaces; None if there is none.

    Only names of modules count: a function that declares a class makes another one at each call.
    """
    known = frame.f_globals.get(name) if frame.f_locals is frame.f_globals else None
    if not isinstance(known, type) or "__genus_declaration__" not in vars(known):
        return None
    place = (namespace.get("__module__"), namespace.get("__qualname__"))
    return known if (known.__module__, known.__qualname__) == place else None


def define_again(known: type, new: Declaration, namespace: Mapping[str, Any]) -> bool:
    """Give a class the methods and properties of a class statement that declares the same; returns whether it does."""
    before: Declaration = vars(known)["__genus_declaration__"]
    if before.difference(new) is not None:
        return False
    if (cell := namespace.get("__classcell__")) is not None:
        cell.cell_contents = known
    for name in before.members - new.members:
        delattr(known, name)
    known.__doc__ = namespace.get("__doc__")
    for name in new.members:
        _set_member(known, name, namespace[name])
    type.__setattr__(known, "__genus_declaration__", new)
    return True


def warn_replaced(known: type, new: Declaration) -> None:
    """Warn that a class statement, the caller's caller, made another class of the name of a class."""
    before: Declaration = vars(known)["__genus_declaration__"]
    warnings.warn(
        f"{known.__name__} is defined again with {before.difference(new)}, so it is another class: subscriptions to "
        "the one before do not get its events. Subscribe again, or restart the program",
        DeclarationWarning,
        stacklevel=3,
    )


def _set_member(cls: type, name: str, value: Any) -> None:
    """Set a method or property as a class statement does."""
    setattr(
        cls, name, classmethod(value) if name in _CLASS_METHODS and isinstance(value, types.FunctionType) else value
    )
    if hasattr(type(value), "__set_name__"):
        value.__set_name__(cls, name)


def _is_same_default(one: Any, other: Any) -> bool:
    if isinstance(one, _FIELD) and isinstance(other, _FIELD):
        factories = one.default_factory, other.default_factory
        return _is_same_default(one.default, other.default) and _is_same_factory(*factories)
    one, other = plain_value(one), plain_value(other)
    return one is other or (type(one) is type(other) and bool(one == other or (one != one and other != other)))


def _is_same_factory(one: Any, other: Any) -> bool:
    """Return whether two functions are the same or, apart from their place, have the same code."""
    codes = [each.__code__ for each in (one, other) if isinstance(each, types.FunctionType) and not each.__closure__]
    bodies = [(code.co_code, code.co_consts, code.co_names) for code in codes]
    return one is other or (len(bodies) == 2 and bodies[0] == bodies[1])
