"""How many examples property tests try: as many as they say in `make test-all`, fewer in `make test`."""

from hypothesis import settings


def examples(count: int) -> settings:
    """Settings of a test that tries `count` examples by the profile `full`, and a share of them by `quick`."""
    return settings(max_examples=max(1, round(count * settings().max_examples / 100)))
