"""Planning a bus: from a description of a system to a calendar, and a verdict for every channel."""

from genus.can._plan.admission import BusLoad, LoadShare, Plan, Verdict, plan
from genus.can._plan.advice import Advice
from genus.can._plan.calendar import Calendar, Occurrence, Slot
from genus.can._plan.dbc_export import format_dbc
from genus.can._plan.foreign import Collision
from genus.can._plan.system import BusSpec, ChannelSpec, ForeignFrame, System
from genus.can._plan.system_file import format_system, load_system, parse_system

__all__ = [
    "Advice",
    "BusLoad",
    "BusSpec",
    "Calendar",
    "ChannelSpec",
    "Collision",
    "ForeignFrame",
    "LoadShare",
    "Occurrence",
    "Plan",
    "Slot",
    "System",
    "Verdict",
    "format_dbc",
    "format_system",
    "load_system",
    "parse_system",
    "plan",
]
