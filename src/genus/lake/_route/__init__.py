"""Routing: which of very many subscriptions match the events of a lake, by lookups in broadcast tables.

Never events times subscriptions: type and attributes are matched once per shape, on the driver (`units`); an equality
or a range in a predicate becomes a key (`parts`, `bins`); only what is left is evaluated event by event (`templates`),
for the few subscriptions that a key lets through. `plan_routes` makes the tables, `RoutePlan` looks events up in them.
"""

from genus.lake._route.route_plan import Routed, RoutePlan, plan_routes, read_subscriptions

__all__ = ["RoutePlan", "Routed", "plan_routes", "read_subscriptions"]
