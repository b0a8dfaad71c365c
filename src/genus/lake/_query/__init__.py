"""Queries: read the events of one subscription, or route the events of a lake to very many subscriptions.

Routing never compares every event with every subscription. Type and attributes are matched once per shape, on the
driver (`shape_match`); an equality or a range in a predicate becomes a lookup key (`decompose`, `lookup`); only
the rest is evaluated per event (`templates`), for the few subscriptions that a key selects. `plan_routes` makes the
tables, and `RoutePlan` looks batches of events up in them, with numpy; `route_job` runs it in Spark tasks.
"""
