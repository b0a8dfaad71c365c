"""The rows of the fault table that concern a node, with C nodes in the place of Python nodes.

`python -m tests.devices.c_faults` runs them and prints the table of `docs/devices-node.md`.
"""

import pytest

from tests.devices.c_faults import LONG, ROWS_OF_NODES, observe


@pytest.mark.parametrize("number", [n for n in ROWS_OF_NODES if n not in LONG])
def test_a_small_run_of_a_row_is_as_expected_with_c_nodes(number: int) -> None:
    observation = observe(number)
    assert observation.ok, f"row {number}: {observation.text}"


@pytest.mark.slow
@pytest.mark.parametrize("number", LONG)
def test_a_small_run_of_a_long_row_is_as_expected_with_c_nodes(number: int) -> None:
    observation = observe(number)
    assert observation.ok, f"row {number}: {observation.text}"


@pytest.mark.slow
@pytest.mark.parametrize("number", ROWS_OF_NODES)
def test_a_full_run_of_a_row_is_as_expected_with_c_nodes(number: int) -> None:
    observation = observe(number, full=True)
    assert observation.ok, f"row {number}: {observation.text}"


@pytest.mark.slow
@pytest.mark.parametrize("number", ROWS_OF_NODES)
@pytest.mark.parametrize("seed", [2, 3])
def test_a_small_run_of_a_row_is_as_expected_with_other_seeds(number: int, seed: int) -> None:
    observation = observe(number, seed=seed)
    assert observation.ok, f"row {number}: {observation.text}"
