"""What a client keeps of its observations: of a server of Genus, and of a plain device."""

import asyncio
import re
import time
from hashlib import sha256
from typing import Any

from aiocoap import error
from aiocoap.numbers import codes

from genus.codes import encode_path_segment, parse_path_segment
from genus.model import name_of
from genus.net._coap.agreed import Agreement
from genus.net._coap.observation import DEFAULT_AGE_S, Observation
from genus.net._coap.seen import SeenEvents
from genus.net._coap.upstream import Upstream
from genus.net._coap.wire import CBOR, Notified, Unreadable, read_body, write_cbor
from genus.net._envelope import NUMBERS, Origin
from genus.targets.coap import CoapFilter

FRESH_S = 128.0
"""After so long a notification is new whatever its number is (RFC 7641, section 3.4)."""
_LINK = re.compile(r"<([^>]*)>")
_SCALARS = (bool, int, float, str, bytes)


class ReceivedEvents:
    """State: the session at a server of Genus, and the number of the last event that was received in it."""

    def __init__(self, peer: Upstream) -> None:
        self.session = b""
        self.last = 0
        self._peer = peer
        self._seen = SeenEvents()

    def begin(self, notified: Notified) -> None:
        """A registration was answered, perhaps with another session than before.

        The answer has no events, but if it was lost, a notification may be the first that comes.
        """
        if notified.session == self.session:
            return
        if self.session:
            self._peer.counts["sessions that were lost"] += 1
            why = "the server has restarted or given this client up; how many events were missed is not known"
            for name in self._observed():
                self._peer.calls.lost(name, 0, self._server(), why)
        self.session, self.last = notified.session, notified.first - bool(notified.origins)

    def is_new(self, notified: Notified) -> bool:
        """Whether a notification has an event that was not received; one that has none is counted."""
        if not notified.origins:
            return False
        is_new = notified.session != self.session or notified.first + len(notified.origins) > self.last + 1
        self._peer.counts["duplicates"] += 0 if is_new else len(notified.origins)
        return is_new

    def has_unknown(self, observation: Observation, body: bytes) -> bool:
        """Whether a body has codes that the catalog does not have."""
        given = self._pairs(observation, body)
        agreement = _agreement(self._peer)
        return not isinstance(given, Unreadable) and any(agreement.type_of(code) is None for code, _ in given)

    def take(self, observation: Observation, notified: Notified, body: bytes) -> None:
        """Take the events of a notification: each once, in their order, and what is missing is told."""
        counts = self._peer.counts
        if notified.session != self.session:
            counts["rejected: a notification of another session"] += 1
            return
        given = self._pairs(observation, body)
        if isinstance(given, Unreadable) or len(given) != len(notified.origins):
            reason = given.reason if isinstance(given, Unreadable) else "not as many origins as events"
            counts[f"rejected: {reason}"] += 1
            return
        self._note_gap(notified.first)
        for number, (code, attributes), origin in zip(
            range(notified.first, notified.first + len(given)), given, notified.origins, strict=True
        ):
            if number <= self.last:
                counts["duplicates"] += 1
                continue
            self.last = number
            self.deliver(code, attributes, origin)

    def _note_gap(self, first: int) -> None:
        missing = first - self.last - 1
        if missing > 0:
            self._peer.counts["lost"] += missing
            self._tell_gap(missing)
            self.last = first - 1

    def _tell_gap(self, missing: int) -> None:
        """Tell all that observe: numbers are those of the session, so the types of what is missing are not known."""
        names = self._observed()
        count, why = missing, "the server could not send them in time"
        if len(names) > 1:
            count, why = 0, f"{why}: {missing} event(s) of all that is observed there, of which types is not known"
        for name in names:
            self._peer.calls.lost(name, count, self._server(), why)

    def _observed(self) -> list[str]:
        """The names of the types that are observed."""
        observed = self._peer.observations.values()
        return list(dict.fromkeys("&".join(map(name_of, one.subscription.types)) for one in observed))

    def _pairs(self, observation: Observation, body: bytes) -> list[tuple[int, dict[Any, Any]]] | Unreadable:
        code = observation.code
        given = read_body(code, body)
        return [(code, given)] if isinstance(given, dict) else given

    def deliver(self, code: int, attributes: dict[Any, Any], origin: Origin) -> None:
        """Give an event to the bus if it can be read."""
        reader = _agreement(self._peer).reader(code)
        event = Unreadable("a code that no event type has") if reader is None else reader.read(attributes)
        if isinstance(event, Unreadable):
            self._peer.counts[f"rejected: {event.reason}"] += 1
            return
        if not self._seen.is_new(event, origin):
            self._peer.counts["duplicates"] += 1
            return
        self._peer.counts["received"] += 1
        self._peer.calls.receive(event, origin)

    def _server(self) -> str:
        return self._peer.state.uid.hex() if self._peer.state is not None else ""


class PlainDevice:
    """State: a server that knows nothing of Genus: values of its resources are events when they change."""

    def __init__(self, peer: Upstream, received: ReceivedEvents) -> None:
        self._peer, self._received = peer, received
        self._uid = sha256(str(peer.place).encode()).digest()[:8]
        self._number = int(time.time()) % NUMBERS
        self._values: dict[int, bytes] = {}
        """By code: the last value."""

    @property
    def is_fresh(self) -> bool:
        """Whether all that is observed was heard of in time."""
        observed = self._peer.observations.values()
        return all(all(child.is_fresh for child in one.children) if one.children else one.is_fresh for one in observed)

    async def check(self) -> None:
        """Renew the observations whose values are no longer valid."""
        for observation in list(self._peer.observations.values()):
            if observation.children:
                stale = [child for child in observation.children if not child.is_fresh]
                for child in stale:
                    child.stop()
                    await self._observe_child(child)
            elif not observation.is_fresh:
                await self._peer.register(observation)

    async def discover(self, observation: Observation) -> None:
        """Observe the resources below a code one by one, as there is none for all of them."""
        agreement = _agreement(self._peer)
        below = [each for each in await self._peer.discover(observation.code) if agreement.type_of(each)]
        for code in below:
            child = Observation(observation.number, observation.subscription)
            child.filter = CoapFilter(observation.subscription, "type", code)
            observation.children.append(child)
            await self._observe_child(child)
        self._peer.counts["super-resources that a device lacks"] += 1

    async def _observe_child(self, child: Observation) -> None:
        try:
            await self._peer.observe_path(child, encode_path_segment(child.code), ())
        except (error.Error, OSError, TimeoutError):
            self._peer.check_soon()

    def poll(self, observation: Observation, path: str, query: tuple[str, ...]) -> None:
        """Read a resource regularly that cannot be observed."""
        self._peer.counts["resources that are polled"] += 1
        task = asyncio.get_running_loop().create_task(self._poll(observation, path, query))
        observation.begin(task.cancel)
        observation.age_s = float("inf")

    async def _poll(self, observation: Observation, path: str, query: tuple[str, ...]) -> None:
        while True:
            await asyncio.sleep(self._peer.endpoint.options.poll_s)
            try:
                response = await self._peer.request(codes.GET, path, query)
            except (error.Error, OSError, TimeoutError):
                self._peer.counts["polls without an answer"] += 1
                self._peer.lose_connection()
                continue
            if response.code.is_successful():
                self.take(observation, response, response.payload, True)

    def take(self, observation: Observation, message: Any, body: bytes, is_first: bool) -> None:
        """Take a value: an event if it was notified, or if it is another than the last."""
        counts = self._peer.counts
        observation.heard_at = time.monotonic()
        if observation.age_s != float("inf"):
            observation.age_s = DEFAULT_AGE_S if message.opt.max_age is None else max(1.0, message.opt.max_age)
        if not is_first and not self._is_fresh(observation, message.opt.observe):
            counts["superseded"] += 1
            return
        if message.opt.content_format not in (None, CBOR):
            counts["rejected: a value that is no CBOR"] += 1
            return
        code = observation.code
        given = read_body(code, body)
        if isinstance(given, Unreadable):
            counts[f"rejected: {given.reason}"] += 1
            return
        is_event = isinstance(given, dict) and not is_first
        for one, attributes in [(code, given)] if isinstance(given, dict) else given:
            self._take_value(observation, one, attributes, is_event)

    def _is_fresh(self, observation: Observation, sequence: int | None) -> bool:
        """Whether a notification is newer than the last (RFC 7641, section 3.4)."""
        now, before = time.monotonic(), observation.sequence
        if sequence is None or before is None:
            is_newer = True
        else:
            is_newer = 0 < (sequence - before[0]) % (1 << 24) < 1 << 23 or now > before[1] + FRESH_S
        if is_newer and sequence is not None:
            observation.sequence = sequence, now
        return is_newer

    def _take_value(self, observation: Observation, code: int, attributes: dict[Any, Any], is_event: bool) -> None:
        if not self._is_first_of(observation, code, attributes):
            self._peer.counts["also from another observation"] += 1
            return
        written = _scalars(attributes)
        if not is_event and self._values.get(code) == written:
            self._peer.counts["unchanged"] += 1
            return
        self._values[code] = written
        self._number = (self._number + 1) % NUMBERS
        self._received.deliver(code, attributes, Origin(self._uid, self._number))

    def _is_first_of(self, observation: Observation, code: int, attributes: dict[Any, Any]) -> bool:
        """Whether an observation is the first of those that a value comes to: it must become one event.

        The resource of the type itself is before those above it, which may leave out values that were replaced.
        """
        agreement = _agreement(self._peer)
        live = [one for each in self._peer.observations.values() for one in (each, *each.children) if one.is_live]
        others = [one for one in live if code % one.code == 0]
        if others in ([], [observation]) or (reader := agreement.reader(code)) is None:
            return True
        event = reader.read(attributes)
        if isinstance(event, Unreadable):
            return True
        tag = agreement.catalog.tag(event)
        others.sort(key=lambda one: one.code != code)
        first = next((one for one in others if one is observation or one.is_tested(code, tag, event, agreement)), None)
        return first in (None, observation)


def _scalars(attributes: dict[Any, Any]) -> bytes:
    """What tells two values apart; arrays and maps are none of attributes that are known."""
    known = {number: value for number, value in attributes.items() if type(value) in _SCALARS}
    try:
        return write_cbor(known)
    except Exception:  # keys that cannot be sorted
        return b""


def link_paths(payload: bytes) -> list[int]:
    """The codes in the links of a discovery, each once; those of other resources are left out.

    >>> link_paths(b'</DA>,</sensors/temp>;rt="x",</eMI>;ct=60,</DA>;ct=50')
    [12, 30914]
    """
    targets = _LINK.findall(payload.decode(errors="replace"))
    codes_ = (parse_path_segment(target.removeprefix("/")) for target in targets)
    return list(dict.fromkeys(code for code in codes_ if code is not None))


def _agreement(peer: Upstream) -> Agreement:
    assert peer.agreement is not None
    return peer.agreement
