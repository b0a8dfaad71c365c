"""With Spark Connect, a lake does what it does in a classic session."""

import os
import subprocess
import sys
from importlib.util import find_spec
from pathlib import Path
from typing import Any

import msgspec
import pytest
from pyspark.sql import SparkSession

from tests.lake import connect_program
from tests.lake.connect_program import HADOOP, STREAM

ROOT = Path(__file__).parents[2]

pytestmark = [
    pytest.mark.slow,
    pytest.mark.skipif(
        any(find_spec(name) is None for name in ("grpc", "grpc_status", "zstandard")),
        reason="Spark Connect needs grpcio, grpcio-status and zstandard",
    ),
]


@pytest.fixture(scope="module")
def expected(spark: SparkSession, tmp_path_factory: pytest.TempPathFactory) -> Any:
    """The results of a classic session."""
    return _plain(connect_program.run(spark, tmp_path_factory.mktemp("classic")))


@pytest.fixture(scope="module")
def found(tmp_path_factory: pytest.TempPathFactory) -> Any:
    """The results with Spark Connect, in a process of its own: one process has sessions of one kind only."""
    folder = tmp_path_factory.mktemp("connect")
    environment = os.environ | {
        "PYTHONPATH": os.pathsep.join([str(ROOT / "src"), str(ROOT)]),
        "PYSPARK_PYTHON": sys.executable,
        "SPARK_LOCAL_IP": "127.0.0.1",
    }
    command = [sys.executable, "-m", "tests.lake.connect_program", str(folder)]
    ran = subprocess.run(command, capture_output=True, text=True, env=environment, check=False)
    assert ran.returncode == 0, ran.stderr[-3000:]
    return msgspec.json.decode((folder / "result.json").read_bytes())


def _plain(results: dict[str, object]) -> Any:
    return msgspec.json.decode(msgspec.json.encode(results))


def test_every_operation_gives_what_it_gives_in_a_classic_session(found: Any, expected: Any) -> None:
    """But for streams, whose batches would run on the server."""
    assert expected.pop(STREAM) == [100, 0, 60]  # all gates of 300 events at once
    assert {name: result for name, result in found.items() if name not in (HADOOP, STREAM)} == expected


def test_no_operation_fails_but_tables_without_a_metastore(found: Any) -> None:
    refused = {name: text for name, text in found.items() if isinstance(text, str) and "Error: " in text}
    assert refused.keys() == {"register tables", HADOOP, STREAM}
    assert "a stream needs a session with a Spark context" in refused[STREAM]
    assert "keeps no tables" in refused["register tables"]
    assert "with Spark Connect a lake must be in a mounted folder" in refused[HADOOP]
