"""Lazy front doors: a package that imports a submodule only when one of its names is used.

A package's `__init__` lists its names in `__all__`, imports them under `TYPE_CHECKING` for type checkers, and passes
the same table to `lazy`. So `import genus.can` needs neither python-can nor matplotlib.
"""

from collections.abc import Callable
from importlib import import_module
from typing import Any


def lazy(package: str, **homes: str) -> Callable[[str], Any]:
    """Return the `__getattr__` of a package: `homes` has the names of each submodule, separated by spaces.

    In the name of a submodule `__` stands for a dot. A submodule whose names include its own is given itself.

    >>> get = lazy("genus.testing", _clock="VirtualClock")
    >>> get("VirtualClock").__name__
    'VirtualClock'
    >>> get("Clock")
    Traceback (most recent call last):
    AttributeError: module 'genus.testing' has no attribute 'Clock'
    """
    home_of = {name: home.replace("__", ".") for home, names in homes.items() for name in names.split()}

    def find(name: str) -> Any:
        if name not in home_of:
            raise AttributeError(f"module {package!r} has no attribute {name!r}")
        home = import_module(f"{package}.{home_of[name]}")
        return home if name == home_of[name] else getattr(home, name)

    return find
