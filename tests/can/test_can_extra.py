"""Addresses of live buses without the packages of the extra `can`: what is missing is named, and how to install it."""

import subprocess
import sys

import pytest

OPEN = """
import sys
sys.modules.update(dict.fromkeys(sys.argv[1].split(",")))  # importing them fails
from genus import open_bus
try:
    open_bus(sys.argv[2]).close()
except Exception as problem:
    print(problem)
"""


@pytest.mark.parametrize(
    ("missing", "address", "message"),
    [
        ("can", "can:virtual?database=Car.dbc", "a live CAN bus needs python-can"),
        ("cantools,numpy", "can:virtual", None),
        ("cantools", "can:virtual?database=Car.dbc", "DBC files need cantools"),
        ("msgpack", "can:udp_multicast", "msgpack not installed"),
    ],
)
def test_a_missing_package_is_named_with_the_command_that_installs_it(
    missing: str, address: str, message: str | None
) -> None:
    arguments = [sys.executable, "-c", OPEN, missing, address]
    printed = subprocess.run(arguments, capture_output=True, text=True, check=True, timeout=120).stdout
    if message is None:
        assert not printed
    else:
        assert message in printed
        assert "[can]'" in printed
