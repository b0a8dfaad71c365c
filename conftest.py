"""The code in README.md and docs/ is run as tests, each page from top to bottom."""

from doctest import ELLIPSIS

from sybil import Sybil
from sybil.parsers.markdown import PythonCodeBlockParser

collect_ignore = ["tests/typing"]  # for type checkers to read, not to run

pytest_collect_file = Sybil(
    parsers=[PythonCodeBlockParser(doctest_optionflags=ELLIPSIS)],
    patterns=["README.md", "docs/*.md"],
).pytest()
