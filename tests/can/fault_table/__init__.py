"""The rows of the fault table, each of which can be run: see `docs/can-simulator.md`."""

from tests.can.fault_table import brokers, clocks, drivers, error_states, frames, fuzz, live, stations
from tests.can.fault_table.row import LIVE, ROWS, Observation, Row, Setting

__all__ = [
    "LIVE",
    "ROWS",
    "Observation",
    "Row",
    "Setting",
    "brokers",
    "clocks",
    "drivers",
    "error_states",
    "frames",
    "fuzz",
    "live",
    "stations",
]
