"""The types of the pictures: those of the traffic application, with the numbers that a new catalog gives them."""

from genus import Catalog, Subscription, this
from genus_traffic.types import TYPES, Category, Loop

AGREED = Catalog()
AGREED.register(*TYPES)


def truck_with_place() -> Subscription:
    """The subscription that the pictures follow."""
    return Subscription(Loop, has="place", where=this.category == Category.TRUCK)
