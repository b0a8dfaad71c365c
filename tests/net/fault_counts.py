"""What became of events in a fault test; `python -m bench.network_faults` writes such counts into the docs."""

from typing import NamedTuple


class Counts(NamedTuple):
    """Events that were sent, delivered once each, delivered again, and told as lost at each end."""

    sent: int
    delivered: int
    doubled: int
    told_receiver: int
    told_sender: int

    def check(self, most_doubled: int = 0) -> "Counts":
        """Each event was delivered, or told to the receiver as lost; at most so many came again."""
        assert self.sent == self.delivered + self.told_receiver, self
        assert self.doubled <= most_doubled, self
        return self

    def plus(self, other: "Counts") -> "Counts":
        """The counts of both."""
        return Counts(*(one + another for one, another in zip(self, other, strict=True)))


NONE = Counts(0, 0, 0, 0, 0)
