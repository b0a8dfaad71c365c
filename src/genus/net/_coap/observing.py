"""What a client makes of notifications: those of a server of Genus, and those of a plain device."""

import asyncio
import re
import time
from collections.abc import Awaitable, Callable
from hashlib import sha256
from typing import Any

from aiocoap.numbers import codes

from genus.codes import encode_path_segment, parse_path_segment
from genus.errors import counted
from genus.model import Event, name_of
from genus.net._coap.upstream import DEFAULT_AGE_S, NO_ANSWER, Observation, Upstream
from genus.net._coap.values import CBOR, SCALARS, Notified, Unreadable, read_body, write_cbor
from genus.net._envelope import NUMBERS, Origin
from genus.targets.coap import CoapFilter

FRESH_S = 128.0
"""After so long a notification is new whatever its number is (RFC 7641, section 3.4)."""
_LINK = re.compile(r"<([^>]*)>")

Pairs = list[tuple[int, dict[Any, Any]]]


def _pairs(observation: Observation, body: bytes) -> Pairs | Unreadable:
    """Return the events in a body, as codes and attributes."""
    given = read_body(observation.code, body)
    return [(observation.code, given)] if isinstance(given, dict) else given


class ReceivedEvents:
    """State: the session at a server of Genus, and the number of the last event that was received in it."""

    def __init__(self, upstream: Upstream) -> None:
        self.session = b""
        self.last = 0
        self._upstream = upstream

    def begin(self, notified: Notified) -> None:
        """A registration was answered, perhaps with another session than before.

        The answer has no events, but if it was lost, a notification may be the first that comes.
        """
        if notified.session == self.session:
            return
        if self.session:
            self._upstream.counts["sessions that were lost"] += 1
            self._tell(0, "the server has restarted, or has given this client up")
        self.session, self.last = notified.session, notified.first - bool(notified.origins)

    def is_new(self, notified: Notified) -> bool:
        """Return whether a notification has an event that was not received; one that has none is counted."""
        if not notified.origins:
            return False
        is_new = notified.session != self.session or notified.first + len(notified.origins) > self.last + 1
        self._upstream.counts["duplicates"] += 0 if is_new else len(notified.origins)
        return is_new

    def has_unknown(self, observation: Observation, body: bytes) -> bool:
        """Return whether a body has codes that the catalog does not have."""
        given = _pairs(observation, body)
        return not isinstance(given, Unreadable) and any(
            self._upstream.shared.type_of(code) is None for code, _ in given
        )

    def take(self, observation: Observation, notified: Notified, body: bytes) -> None:
        """Take the events of a notification: each once, in their order, and what is missing is told."""
        if notified.session != self.session:
            self._upstream.rejections.add("a notification of another session")
            return
        given = _pairs(observation, body)
        if isinstance(given, Unreadable) or len(given) != len(notified.origins):
            reason = given.reason if isinstance(given, Unreadable) else "another number of origins than of events"
            self._upstream.rejections.add(reason, encode_path_segment(observation.code), body)
            return
        self._note_gap(notified.first - self.last - 1)
        for number, (code, attributes), origin in zip(
            range(notified.first, notified.first + len(given)), given, notified.origins, strict=True
        ):
            if number <= self.last:
                self._upstream.counts["duplicates"] += 1
                continue
            self.last = number
            deliver(self._upstream, code, attributes, origin)

    def _note_gap(self, missing: int) -> None:
        """Tell all that observe: numbers are those of the session, so the types of what is missing are not known."""
        if missing <= 0:
            return
        self._upstream.counts["lost"] += missing
        self.last += missing
        count, why = missing, "the server could not send them in time"
        if len(self._observed()) > 1:
            count, why = 0, f"the server could not send in time: {counted(missing, 'event')}, of any observed type"
        self._tell(count, why)

    def _tell(self, count: int, why: str) -> None:
        state = self._upstream.state
        for name in self._observed():
            self._upstream.inbox.missed(name, count, state.uid.hex() if state is not None else "", why)

    def _observed(self) -> list[str]:
        observed = self._upstream.observations.values()
        return list(dict.fromkeys("&".join(map(name_of, one.subscription.types)) for one in observed))


def deliver(upstream: Upstream, code: int, attributes: dict[Any, Any], origin: Origin) -> None:
    """Give an event to the bus; one that cannot be read is lost, and told so."""
    event = upstream.shared.read(code, attributes)
    if isinstance(event, Unreadable):
        upstream.rejections.add(event.reason, hex(code), _scalars(attributes))
        type_ = upstream.shared.type_of(code) or name_of(Event)
        upstream.inbox.missed(type_, 1, origin.uid.hex(), f"could not be read: {event.reason}")
    else:
        upstream.counts["received"] += 1
        upstream.inbox.receive(event, origin)


class PlainDevice:
    """State: a server that knows nothing of Genus: values of its resources are events when they change.

    `observe_path` registers an observation of a path, and returns the first response.
    """

    def __init__(
        self, upstream: Upstream, observe_path: Callable[[Observation, str, tuple[str, ...]], Awaitable[Any]]
    ) -> None:
        self._upstream, self._observe_path = upstream, observe_path
        self._uid = sha256(str(upstream.place).encode()).digest()[:8]
        self._number = int(time.time()) % NUMBERS
        self._values: dict[int, bytes] = {}
        """By code: the last value."""

    @property
    def is_fresh(self) -> bool:
        """Whether all that is observed was heard of in time."""
        observed = self._upstream.observations.values()
        return all(all(child.is_fresh for child in one.children) if one.children else one.is_fresh for one in observed)

    async def check(self, register: Callable[[Observation], Awaitable[None]]) -> None:
        for observation in list(self._upstream.observations.values()):
            for child in [child for child in observation.children if not child.is_fresh]:
                child.stop()
                await self._observe_child(child)
            if not observation.children and not observation.is_fresh:
                await register(observation)

    # -- observing ---------------------------------------------------------------------------------------------------

    async def observe(self, observation: Observation, path: str, query: tuple[str, ...]) -> Any:
        """Observe a path, or read it regularly if it cannot be observed; the first response."""
        response = await self._observe_path(observation, path, query)
        if response.opt.observe is None or not response.code.is_successful():
            observation.stop()
            if response.code.is_successful():
                self._upstream.counts["resources that are polled"] += 1
                task = asyncio.get_running_loop().create_task(self._poll(observation, path, query))
                observation.begin(task.cancel)
                observation.age_s = float("inf")
        return response

    async def _poll(self, observation: Observation, path: str, query: tuple[str, ...]) -> None:
        while True:
            await asyncio.sleep(self._upstream.endpoint.options.poll_s)
            try:
                response = await self._upstream.request(codes.GET, path, query)
            except NO_ANSWER:
                self._upstream.counts["polls without an answer"] += 1
                self._upstream.lose_connection()
                continue
            if response.code.is_successful():
                self.take(observation, response, response.payload, True)

    async def observe_below(self, observation: Observation) -> None:
        """Observe the resources below a code one by one, as there is none for all of them."""
        for code in await self._list_below(observation.code):
            child = Observation(observation.number, observation.subscription)
            child.filter = CoapFilter(observation.subscription, "type", code)
            observation.children.append(child)
            await self._observe_child(child)
        self._upstream.counts["super-resources that a device lacks"] += 1

    async def _list_below(self, code: int) -> list[int]:
        """Return the codes of known types below a code that the device lists."""
        for query in ((f"is={encode_path_segment(code)}",), ()):  # those that know no codes find no link with `is`
            response = await self._upstream.request(codes.GET, ".well-known/core", query)
            found = link_paths(response.payload) if response.code.is_successful() else []
            if below := [each for each in found if each % code == 0]:
                return [each for each in below if self._upstream.shared.type_of(each)]
        return []

    async def _observe_child(self, child: Observation) -> None:
        try:
            await self.observe(child, encode_path_segment(child.code), ())
        except NO_ANSWER:
            self._upstream.is_due.set()

    # -- values ------------------------------------------------------------------------------------------------------

    def take(self, observation: Observation, message: Any, body: bytes, is_first: bool) -> None:
        """Take a value: an event if it was notified, or if it is another than the last."""
        observation.heard_at = time.monotonic()
        if observation.age_s != float("inf"):
            observation.age_s = DEFAULT_AGE_S if message.opt.max_age is None else max(1.0, message.opt.max_age)
        if not is_first and not self._is_fresh(observation, message.opt.observe):
            self._upstream.counts["superseded"] += 1
            return
        is_cbor = message.opt.content_format in (None, CBOR)
        given = read_body(observation.code, body) if is_cbor else Unreadable("a value that is no CBOR")
        if isinstance(given, Unreadable):
            self._upstream.rejections.add(given.reason, encode_path_segment(observation.code), body)
            return
        is_event = isinstance(given, dict) and not is_first
        for code, attributes in [(observation.code, given)] if isinstance(given, dict) else given:
            self._take_value(observation, code, attributes, is_event)

    def _is_fresh(self, observation: Observation, sequence: int | None) -> bool:
        """Return whether a notification is newer than the last (RFC 7641, section 3.4)."""
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
            self._upstream.counts["also from another observation"] += 1
            return
        written = _scalars(attributes)
        if not is_event and self._values.get(code) == written:
            self._upstream.counts["unchanged"] += 1
            return
        self._values[code] = written
        self._number = (self._number + 1) % NUMBERS
        deliver(self._upstream, code, attributes, Origin(self._uid, self._number))

    def _is_first_of(self, observation: Observation, code: int, attributes: dict[Any, Any]) -> bool:
        """Return whether an observation is the first of those that a value comes to: it must become one event.

        The resource of the type itself is before those above it, which may leave out values that were replaced.
        """
        catalog = self._upstream.shared.catalog
        live = [one for each in self._upstream.observations.values() for one in (each, *each.children) if one.is_live]
        others = [one for one in live if code % one.code == 0]
        if others in ([], [observation]):
            return True
        event = self._upstream.shared.read(code, attributes)
        if isinstance(event, Unreadable):
            return True
        tag = catalog.tag(event)
        others.sort(key=lambda one: one.code != code)
        first = next((one for one in others if one is observation or one.is_tested(code, tag, event, catalog)), None)
        return first in (None, observation)


def _scalars(attributes: dict[Any, Any]) -> bytes:
    known = {number: value for number, value in attributes.items() if type(value) in SCALARS}
    try:
        return write_cbor(known)
    except Exception:  # keys that cannot be sorted
        return b""


def link_paths(payload: bytes) -> list[int]:
    """Return the codes in the links of a discovery, each once; those of other resources are left out.

    >>> link_paths(b'</DA>,</sensors/temp>;rt="x",</eMI>;ct=60,</DA>;ct=50')
    [12, 30914]
    """
    targets = _LINK.findall(payload.decode(errors="replace"))
    codes_ = (parse_path_segment(target.removeprefix("/")) for target in targets)
    return list(dict.fromkeys(code for code in codes_ if code is not None))
