"""For all tests: the order of files, profiles, the Spark session; code in README.md and docs/ is run page by page."""

import os
from collections.abc import Iterator
from contextlib import nullcontext
from doctest import ELLIPSIS
from functools import wraps
from typing import TYPE_CHECKING, Any

import pytest
from hypothesis import settings
from sybil import Sybil
from sybil.parsers.markdown import PythonCodeBlockParser
from sybil.sybil import SybilCollection

if TYPE_CHECKING:
    from playwright.sync_api import Browser
    from pyspark.sql import SparkSession

os.environ.setdefault(
    "SPARK_SUBMIT_OPTS",
    "-XX:TieredStopAtLevel=1 -XX:+UseSerialGC -XX:+UnlockDiagnosticVMOptions -XX:-BytecodeVerificationRemote",
)
"""For short runs of Java: no optimising compiler, no verification of classes; also in processes that tests start."""

for name in ("COLUMNS", "LINES"):
    os.environ.pop(name, None)  # readline sets them for child processes, as are those of xdist

settings.register_profile("quick", max_examples=10, deadline=None)
settings.register_profile("full", max_examples=100, deadline=None)  # `make test-all`
settings.load_profile("quick")

LONG = (
    "lake/test_lake_commands", "lake/test_stream", "can/test_faults", "lake/test_inboxes",
    "lake/test_windows", "lake/test_restored", "lake/test_full_disk", "lake/test_keeping", "lake/test_integrity",
    "lake/test_route", "lake/test_data_source", "lake/test_pairing", "test_truth_table", "lake/test_derived",
    "targets/test_spark", "tests/test_run", "lake/test_hadoop", "lake/test_hard_cases", "test_typing",
    "codes/test_schemes", "lake/test_lake", "lake-analysis", "cli/test_bus_commands", "tests/test_loops",
    "lake/test_json_lines",
)  # fmt: skip
"""Files that take long, which workers begin with, so that none is left with one of them at the end."""

collect_ignore = [
    "tests/typing",  # for type checkers to read, not to run
    "docs/hooks",  # needs the extra `docs`
]


@pytest.hookimpl(tryfirst=True)
def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """Put the files that take long first; tests in a browser, which a fresh machine has not, are for the long run."""
    for item in items:
        if "browser" in getattr(item, "fixturenames", ()):
            item.add_marker(pytest.mark.slow)
    items.sort(key=lambda item: next((n for n, name in enumerate(LONG) if name in item.nodeid), len(LONG)))


@pytest.fixture(scope="session")
def spark(pytestconfig: pytest.Config) -> "Iterator[SparkSession]":
    """The Spark session of a worker; by the profile `full` it compiles expressions, as Spark usually does."""
    from genus.testing import compiled_expressions, spark_session

    session = spark_session()
    full = pytestconfig.getoption("--hypothesis-profile") == "full"
    with compiled_expressions(session) if full else nullcontext():
        yield session


@pytest.fixture(scope="session", autouse=True)
def worlds_account_for_their_events() -> Iterator[None]:
    """At the end of every simulated bus of every test, each published event has one named result."""
    from genus.can import World

    close = World.close

    @wraps(close)
    def close_and_check(world: World) -> None:
        close(world)
        sums = {each.channel: (each.published, each.accounted) for each in world.channels()}
        assert all(published == accounted for published, accounted in sums.values()), sums

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(World, "close", close_and_check)
        yield


_CHROMIUM_OPTIONS = (
    "--no-sandbox", "--disable-gpu", "--disable-quic", "--no-first-run", "--disable-background-networking",
    "--disable-component-update", "--disable-sync",
    "--host-resolver-rules=MAP evil.example 127.0.0.1",  # a site whose owner lets its name lead to this machine
)  # fmt: skip


@pytest.fixture(scope="module")
def browser() -> "Iterator[Browser]":
    """A browser for the tests of a file, which are skipped where there is none.

    It is closed after the file: while it is open, no other event loop can run in this thread.
    """
    playwright = pytest.importorskip("playwright.sync_api", reason="a browser needs playwright")
    from tests.programs import need

    chromium = need("chromium")
    playwright.expect.set_options(
        timeout=20_000
    )  # a busy machine is slow; what is right is seen at once on an idle one
    with playwright.sync_playwright() as player:
        opened = player.chromium.launch(executable_path=chromium, args=[*_CHROMIUM_OPTIONS])
        try:
            yield opened
        finally:
            opened.close()


def _with_session(namespace: dict[str, Any]) -> None:
    """Start the session of the tests, which `local_session()` on pages about the lake then returns."""
    from genus.testing import spark_session

    spark_session()
    namespace["__name__"] = "__main__"  # as in a notebook: functions have a module


def _pages(*patterns: str, **options: Any) -> Sybil:
    return Sybil(parsers=[PythonCodeBlockParser(doctest_optionflags=ELLIPSIS)], patterns=patterns, **options)


ON_SPARK = ["docs/lake*.md", "docs/cookbook.md", "docs/coming-from.md"]
pytest_collect_file = SybilCollection(
    (_pages("README.md", "docs/*.md", excludes=ON_SPARK), _pages(*ON_SPARK, setup=_with_session))
).pytest()
