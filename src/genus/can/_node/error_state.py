"""What a node knows of its controller's errors, and whether it may use its hard slots with them.

A controller that is error passive is suspended for 8 bits after each of its frames, in which another station may begin
one, so an event could be too late for a slot that is not planned for that. A node therefore does not use such slots
from the warning of its controller on, which comes several failures before; how many a slot allows is in its length.
"""

from genus.can._plan.calendar import Slot


class ErrorState:
    """State: whether the controller is error passive (or has raised its warning), and whether it is off the bus."""

    __slots__ = ("is_off", "is_passive")

    def __init__(self) -> None:
        self.is_passive = False
        self.is_off = False

    def allows(self, slot: Slot) -> bool:
        """Whether a frame in a slot is on time though it fails as often as the slot allows."""
        return not self.is_off and (not self.is_passive or slot.error_passive == "plan")
