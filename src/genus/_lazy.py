"""Front doors that import a module only when one of its names is asked for.

A room's `__init__` lists its names in `__all__`, imports them under `TYPE_CHECKING` for type checkers, and hands the
same table to `lazy`: so `import genus.can` needs neither python-can nor matplotlib.
"""

from collections.abc import Callable
from importlib import import_module
from typing import Any


def lazy(package: str, **homes: str) -> Callable[[str], Any]:
    """A module's `__getattr__`: `homes` has the names of each submodule, separated by spaces; `__` stands for a dot.

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
        return getattr(import_module(f"{package}.{home_of[name]}"), name)

    return find
