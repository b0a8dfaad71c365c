"""A griffe extension: examples in docstrings (`>>> ...`) become code blocks of the API reference."""

import re

import griffe

DIRECTIVE = re.compile(r" *# doctest: .*$", re.MULTILINE)
EXAMPLE = re.compile(r"^(?P<indent> *)>>> .*(?:\n(?! *$).*)*", re.MULTILINE)


def fence_examples(text: str) -> str:
    """The text with a code fence around each block of lines that begins with `>>>`, without directives of doctest."""
    plain = DIRECTIVE.sub("", text)
    return EXAMPLE.sub(lambda found: f"{found['indent']}```pycon\n{found[0]}\n{found['indent']}```", plain)


class Doctests(griffe.Extension):
    """Puts the examples of all docstrings into code fences."""

    def on_object(self, *, obj: griffe.Object, **_: object) -> None:
        """Change the docstring of one module, class, function or attribute."""
        if obj.docstring:
            obj.docstring.value = fence_examples(obj.docstring.value)
