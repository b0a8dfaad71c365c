"""A clock that is never set: the system's time when the process started, plus the time that has passed since.

Lateness on soft channels is measured with it, so that a system clock that is set does not make events late.
"""

import time

_START_NS = time.time_ns() - time.monotonic_ns()


def steady_us() -> int:
    """Microseconds since 1970."""
    return (_START_NS + time.monotonic_ns()) // 1000
