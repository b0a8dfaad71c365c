"""Studio: a live page on buses, gateways, simulations, recordings and lakes.

`open_studio` and `Bus.studio` open the page, for which they need the extra `studio`. `bundle`, `stylesheet` and
`vendor` give the components of the page to others, as text.
"""

from typing import TYPE_CHECKING

from genus._lazy import lazy

if TYPE_CHECKING:
    from genus.studio._layout import load_layout
    from genus.studio._page import bundle, stylesheet, vendor
    from genus.studio._simulation import parse_simulation
    from genus.studio._studio import Studio, open_source, open_studio

__all__ = [
    "Studio",
    "bundle",
    "load_layout",
    "open_source",
    "open_studio",
    "parse_simulation",
    "stylesheet",
    "vendor",
]

if not TYPE_CHECKING:
    __getattr__ = lazy(__name__)
