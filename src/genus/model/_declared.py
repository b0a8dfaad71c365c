"""The types declared so far, by name. Classes are held weakly: one that nothing else refers to disappears."""

from weakref import WeakSet, ref

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
