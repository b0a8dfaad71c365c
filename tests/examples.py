"""How many examples and cases tests try: as many as they say in `make test-all`, fewer in `make test`."""

from collections.abc import Iterable
from typing import Any

import pytest
from hypothesis import settings


def examples(count: int) -> settings:
    """Settings of a test that tries `count` examples by the profile `full`, and a share of them by `quick`."""
    return settings(max_examples=max(1, round(count * settings().max_examples / 100)))


def some_of(cases: Iterable[Any], every: int) -> list[Any]:
    """Cases for a parameter, of which `make test` tries the first and then one of so many."""
    return [case if at % every == 0 else pytest.param(case, marks=pytest.mark.slow) for at, case in enumerate(cases)]
