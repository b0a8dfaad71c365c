"""Programs that tests call, in the list of `genus doctor`; without one, a test is skipped and says what to install."""

import pytest

from genus.cli._doctor import PROGRAMS, find_program


def needs(*names: str) -> pytest.MarkDecorator:
    """Skips a test where one of these programs is not installed."""
    reasons = [_reason(name) for name in names if find_program(name) is None]
    return pytest.mark.skipif(bool(reasons), reason="; ".join(reasons))


def need(name: str) -> str:
    """The path of a program; skips the test where it is not installed."""
    found = find_program(name)
    if found is None:
        pytest.skip(_reason(name))
    return found


def _reason(name: str) -> str:
    return f"{name} is not installed: apt install {PROGRAMS[name][1]}"
