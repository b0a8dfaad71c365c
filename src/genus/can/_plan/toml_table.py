"""Tables of a system file: those of any TOML file, with bit rates."""

from contextlib import suppress
from math import isfinite

from genus._toml import TomlTable, show
from genus.can._plan.units import read_bitrate
from genus.errors import PlanError


class PlanTable(TomlTable):
    """A table of a system file."""

    error = PlanError

    def bitrate(self, key: str) -> int | None:
        """Bits per second: a number, or a text such as `500k`, `1Mbit/s`, `83.333k`; rounded to whole bits."""
        value = self.entries.get(key)
        if value is None or (isinstance(value, int) and not isinstance(value, bool)):
            return value
        if isinstance(value, float) and isfinite(value):
            return round(value)
        if isinstance(value, str):
            with suppress(ValueError):
                return read_bitrate(value)
        self.refuse(key, f"is {show(value)}; write bits per second, such as 500_000 or '500k' or '1Mbit/s'")
