"""A pen for the documentation's pictures: boxes, words and arrows as SVG, in colours for light and dark pages.

A picture has paper of its own, so that it can be read on any page, and knows by `prefers-color-scheme` which it is on.
"""

from collections.abc import Iterable
from html import escape

LIGHT = {
    "paper": "#fbfaf7",
    "ink": "#22262e",
    "faint": "#6b7280",
    "edge": "#c9c5bb",
    "blue": "#0067a3",
    "blue-tint": "#dcecf7",
    "orange": "#a85500",
    "orange-tint": "#fbe8d3",
    "green": "#00714f",
    "green-tint": "#d8f0e6",
    "purple": "#8a3a78",
    "purple-tint": "#f3e0ef",
    "red": "#b3261e",
    "red-tint": "#f9dedc",
    "grey": "#6b7280",
    "grey-tint": "#eceae4",
}
DARK = {
    "paper": "#20242d",
    "ink": "#e8e6e1",
    "faint": "#a3aab8",
    "edge": "#4a5160",
    "blue": "#7cc4f2",
    "blue-tint": "#1d3a50",
    "orange": "#f5b267",
    "orange-tint": "#4a3217",
    "green": "#68d3ab",
    "green-tint": "#173f33",
    "purple": "#e0a3d2",
    "purple-tint": "#43293e",
    "red": "#ff9d94",
    "red-tint": "#4f2522",
    "grey": "#a3aab8",
    "grey-tint": "#2c313c",
}
COLOURS = ("blue", "orange", "green", "purple", "red", "grey")


class Pen:
    """A sheet of paper of a size, with a title for those who cannot see it."""

    def __init__(self, width: int, height: int, title: str) -> None:
        self.width = width
        self.height = height
        self._title = title
        self._drawn: list[str] = []

    def box(self, x: float, y: float, width: float, height: float, colour: str = "grey", *, style: str = "") -> None:
        """A rounded box; `style` may be "dashed" or "solid"."""
        self._drawn.append(
            f'<rect class="box {colour} {style}" x="{x:g}" y="{y:g}" width="{width:g}" height="{height:g}" rx="6"/>'
        )

    def words(self, x: float, y: float, text: str, kind: str = "", *, at: str = "start") -> None:
        """One line of text; `kind` names its looks, such as "code small blue", `at` which end of it is at x."""
        anchor = "" if at == "start" else f' text-anchor="{at}"'
        self._drawn.append(f'<text class="{kind}" x="{x:g}" y="{y:g}"{anchor}>{escape(text, quote=False)}</text>')

    def lines(
        self, x: float, y: float, texts: Iterable[str], kind: str = "", *, at: str = "start", step: float = 16
    ) -> None:
        """Lines of text, one below the other."""
        for number, text in enumerate(texts):
            self.words(x, y + step * number, text, kind, at=at)

    def pieces(
        self, x: float, y: float, parts: Iterable[tuple[str, str]], kind: str = "", *, at: str = "start"
    ) -> None:
        """One line of text in several looks."""
        spans = "".join(f'<tspan class="{looks}">{escape(text, quote=False)}</tspan>' for text, looks in parts)
        anchor = "" if at == "start" else f' text-anchor="{at}"'
        self._drawn.append(f'<text class="{kind}" xml:space="preserve" x="{x:g}" y="{y:g}"{anchor}>{spans}</text>')

    def path(self, way: str, colour: str = "grey", *, style: str = "", arrow: bool = False) -> None:
        """A line along an SVG path, with an arrow at its end if asked."""
        end = f' marker-end="url(#to-{colour})"' if arrow else ""
        self._drawn.append(f'<path class="line {colour} {style}" d="{way}"{end}/>')

    def dot(self, x: float, y: float, colour: str, radius: float = 5) -> None:
        """A filled circle."""
        self._drawn.append(f'<circle class="dot {colour}" cx="{x:g}" cy="{y:g}" r="{radius:g}"/>')

    def svg(self) -> str:
        """The picture as a file."""
        size = f'viewBox="0 0 {self.width} {self.height}" width="{self.width}" height="{self.height}"'
        return "\n".join(
            [
                f'<svg xmlns="http://www.w3.org/2000/svg" {size} role="img">',
                f"<title>{escape(self._title, quote=False)}</title>",
                f"<style>{_looks()}</style>",
                f"<defs>{''.join(map(_arrow_head, COLOURS))}</defs>",
                f'<rect class="paper" width="{self.width}" height="{self.height}" rx="10"/>',
                *self._drawn,
                "</svg>\n",
            ]
        )


def _looks() -> str:
    rules = [
        f":root{{{_variables(LIGHT)}}}",
        f"@media (prefers-color-scheme:dark){{:root{{{_variables(DARK)}}}}}",
        "text{font:14px system-ui,-apple-system,'Segoe UI',Roboto,sans-serif;fill:var(--ink)}",
        ".code{font-family:ui-monospace,SFMono-Regular,Menlo,Consolas,'DejaVu Sans Mono',monospace;font-size:12.5px}",
        ".small{font-size:12px}.tiny{font-size:10.5px}.big{font-size:17px}.strong{font-weight:600}",
        ".faint{fill:var(--faint)}",
        ".paper{fill:var(--paper)}",
        ".box{stroke-width:1.2}.line{fill:none;stroke-width:1.6}",
        ".dashed{stroke-dasharray:4 3}.thick{stroke-width:2.6}",
        *(_colour_rules(colour) for colour in COLOURS),
    ]
    return "\n".join(rules)


def _variables(palette: dict[str, str]) -> str:
    return ";".join(f"--{name}:{value}" for name, value in palette.items())


def _colour_rules(colour: str) -> str:
    line, tint = f"var(--{colour})", f"var(--{colour}-tint)"
    return (
        f".box.{colour}{{fill:{tint};stroke:{line}}}.box.{colour}.solid{{fill:{line}}}.line.{colour}{{stroke:{line}}}"
        f".dot.{colour},text.{colour},tspan.{colour},.head.{colour}{{fill:{line}}}"
    )


def _arrow_head(colour: str) -> str:
    return (
        f'<marker id="to-{colour}" viewBox="0 0 8 8" refX="7" refY="4" markerWidth="7" markerHeight="7" orient="auto">'
        f'<path class="head {colour}" d="M0 0L8 4L0 8z"/></marker>'
    )
