"""A receiver that remembers what a transport calls it with, and waits for it."""

import threading
from collections import Counter
from collections.abc import Callable


class RecordingReceiver:
    """State: all that a transport told. A test waits for a condition on it."""

    def __init__(self, on_packet: Callable[[bytes], object] | None = None) -> None:
        self.packets: list[tuple[str, bytes, bytes]] = []
        self.tokens: dict[str, None] = {}
        self.losses: Counter[str] = Counter()
        self.reasons: set[str] = set()
        self.calls: list[tuple[str, bool]] = []
        self.threads: set[int] = set()
        self._on_packet = on_packet
        self._changed = threading.Condition()

    def packet(self, key: str, envelope: bytes, payload: bytes) -> None:
        self.threads.add(threading.get_ident())
        if self._on_packet is not None:
            self._on_packet(payload)
        with self._changed:
            self.packets.append((key, envelope, payload))
            self._changed.notify_all()

    def token(self, key: str, is_present: bool) -> None:
        self.threads.add(threading.get_ident())
        with self._changed:
            self.calls.append((key, is_present))
            if is_present:
                self.tokens[key] = None
            else:
                del self.tokens[key]
            self._changed.notify_all()

    def dropped(self, key: str, count: int, reason: str) -> None:
        with self._changed:
            self.losses[key] += count
            self.reasons.add(reason)
            self._changed.notify_all()

    def connected(self, is_connected: bool) -> None:
        pass

    @property
    def payloads(self) -> list[bytes]:
        """The payloads that came so far."""
        with self._changed:
            return [payload for _, _, payload in self.packets]

    def wait(self, condition: Callable[[], bool], timeout: float = 60) -> None:
        """Wait until it is true; it is tried after each call, and now and then."""
        for _ in range(int(timeout / 0.02)):
            with self._changed:
                if condition() or self._changed.wait_for(condition, 0.02):
                    return
        raise AssertionError(f"did not become true within {timeout} s")

    def wait_for(self, count: int) -> list[bytes]:
        """Wait for so many packets; their payloads."""
        self.wait(lambda: len(self.packets) >= count)
        return self.payloads
