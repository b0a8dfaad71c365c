"""From a description of a system to a calendar and a promise: which channels keep their deadlines, and by how much."""

from genus.can.plan.admission import Load, Plan, Share, Verdict, plan
from genus.can.plan.advice import Advice
from genus.can.plan.calendar import Calendar, Occurrence, Slot
from genus.can.plan.spelling import spell_system
from genus.can.plan.system import Bus, Channel, System
from genus.can.plan.text import load_system, parse_system

__all__ = [
    "Advice",
    "Bus",
    "Calendar",
    "Channel",
    "Load",
    "Occurrence",
    "Plan",
    "Share",
    "Slot",
    "System",
    "Verdict",
    "load_system",
    "parse_system",
    "plan",
    "spell_system",
]
