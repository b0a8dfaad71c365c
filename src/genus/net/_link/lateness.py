"""Lateness on soft channels: measured by receivers, told to publishers."""

import threading
from collections.abc import Callable

from genus.net._link.incoming import SoftTimes

MOST = 10_000


class LateEvents:
    """State: events that came after their deadline since the last report, by key and sender."""

    def __init__(self, time_us: Callable[[], int]) -> None:
        self._time_us = time_us
        self._late: dict[tuple[str, bytes], tuple[int, int, int]] = {}
        self._lock = threading.Lock()
        self.late = self.expired = 0

    def is_on_time(self, key: str, sender: bytes, times: SoftTimes) -> bool:
        """Note the lateness of an event; returns whether it has not expired."""
        age_us = self._time_us() - times.published_us
        is_expired = bool(times.expires_us) and age_us > times.expires_us
        if age_us > times.deadline_us:
            with self._lock:
                count, worst, expired = self._late.get((key, sender), (0, 0, 0))
                if count or len(self._late) < MOST:
                    worst = max(worst, age_us - times.deadline_us)
                    self._late[key, sender] = count + 1, worst, expired + is_expired
                self.late += 1
                self.expired += is_expired
        return not is_expired

    def take(self) -> dict[tuple[str, bytes], tuple[int, int, int]]:
        """Since the last call, for each key and sender: the number late, the worst lateness, the number expired."""
        with self._lock:
            taken, self._late = self._late, {}
            return taken
