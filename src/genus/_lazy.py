"""Lazy front doors: a package that imports a submodule only when one of its names is used.

A package's `__init__` imports its names under `TYPE_CHECKING`, for type checkers, and `lazy` reads them there: no
second table says where they live. So `import genus.can` needs neither python-can nor matplotlib.
"""

import ast
import sys
from collections.abc import Callable, Iterator
from importlib import import_module
from typing import Any

from genus._extras import missing_extra


def lazy(module: str, **extras: str) -> Callable[[str], Any]:
    """Return the `__getattr__` of a module: it imports a name from where the module imports it for type checkers.

    A name is looked up once; then it is an attribute of the module. `dir` of a module with `__all__` gives that.

    Args:
        module: The name of the module.
        extras: Which extra brings a package that the module needs; an error names it where the package is missing.

    >>> get = lazy("genus.testing")
    >>> get("VirtualClock").__name__
    'VirtualClock'
    >>> get("Clock")
    Traceback (most recent call last):
    AttributeError: module 'genus.testing' has no attribute 'Clock'
    """
    homes: dict[str, str] = {}
    door: Any = sys.modules[module]
    if hasattr(door, "__all__"):
        door.__dir__ = lambda: list(door.__all__)

    def find(name: str) -> Any:
        if not homes:
            homes.update(_imports_for_type_checkers(module))
        if name not in homes:
            raise AttributeError(f"module {module!r} has no attribute {name!r}")
        try:
            found = getattr(import_module(homes[name]), name) if homes[name] else import_module(f"{module}.{name}")
        except ImportError as missing:
            if sys._getframe(1).f_globals.get("__name__") == "inspect":  # `help` leaves out names without an attribute
                raise AttributeError(f"{module}.{name} cannot be imported: {missing}") from missing
            package = (missing.name or "").partition(".")[0]
            if package not in extras:
                raise
            raise missing_extra(f"{module}.{name} needs {package}", extras[package]) from missing
        setattr(door, name, found)
        return found

    return find


def _imports_for_type_checkers(module: str) -> Iterator[tuple[str, str]]:
    """Each name below `if TYPE_CHECKING:` with the module it comes from; submodules come from ""."""
    loader: Any = sys.modules[module].__loader__
    if (source := loader.get_source(module)) is None:
        raise ImportError(f"the source of {module} is needed to find where its names live")
    for node in ast.parse(source).body:
        if isinstance(node, ast.If) and isinstance(node.test, ast.Name) and node.test.id == "TYPE_CHECKING":
            for each in node.body:
                if isinstance(each, ast.ImportFrom) and each.module:
                    home = "" if each.module == module else each.module
                    yield from ((alias.name, home) for alias in each.names)
