"""The components of Studio's page for other pages: scripts, style and vendored files as text, to put into one file.

A page that opens from a file cannot import modules. So `bundle` joins components into one script: it follows their
imports, removes the words `import` and `export`, and gives what they export as one object.
"""

import re
from collections.abc import Iterator
from functools import cache
from importlib.resources import files

_IMPORT = re.compile(r'^import \{ (?P<names>[^}]*) \} from "\./(?P<file>[a-z-]+)\.js";\n', re.MULTILINE)
_EXPORT = re.compile(r"^export (?=(?:async )?(?:function|const|class)\b\*? *(?P<name>[A-Za-z_$][\w$]*))", re.MULTILINE)
_STYLES = ("design.css", "figures.css")


def bundle(*names: str) -> str:
    """The script of some components, and of what they import, which defines `studio` with everything they export.

    A component that draws charts needs `vendor("uPlot.iife.min.js")` before it. ValueError for an unknown name.

    >>> bundle("bits").splitlines()[0]
    'const studio = (() => {'
    """
    texts = {name: _read_component(name) for name in _in_order(names)}
    exported = [found["name"] for name in names for found in _EXPORT.finditer(texts[name])]
    bodies = (_EXPORT.sub("", _IMPORT.sub("", text)).strip() for text in texts.values())
    parts = ["const studio = (() => {", '"use strict";', *bodies, f"return {{ {', '.join(exported)} }};", "})();"]
    return "\n".join(parts) + "\n"


def stylesheet() -> str:
    """Return the style of the design and of the components; charts need `vendor("uPlot.min.css")` as well."""
    return "\n".join(_read(name) for name in _STYLES)


def vendor(name: str) -> str:
    """Return a file that others wrote: `uPlot.iife.min.js`, `uPlot.min.css` or its `LICENSE`.

    >>> vendor("LICENSE").splitlines()[0]
    'The MIT License (MIT)'
    """
    return _read(f"vendor/{name}")


def _in_order(names: tuple[str, ...]) -> list[str]:
    """Components, each after those that it imports."""
    ordered: list[str] = []

    def visit(name: str, above: tuple[str, ...]) -> None:
        if name in above:
            raise ValueError(f"components import each other: {' from '.join((*above, name))}")
        if name not in ordered:
            for imported in _imports(name):
                visit(imported, (*above, name))
            ordered.append(name)

    for name in names:
        visit(name, ())
    return ordered


def _imports(name: str) -> Iterator[str]:
    return (found["file"] for found in _IMPORT.finditer(_read_component(name)))


def _read_component(name: str) -> str:
    return _read(f"components/{name}.js")


@cache
def _read(name: str) -> str:
    try:
        return files("genus.studio").joinpath(f"page/{name}").read_text(encoding="utf-8")
    except FileNotFoundError:
        raise ValueError(f"Studio's page has no {name}") from None
