"""From a description of a system to a calendar and a promise: which channels keep their deadlines, and by how much."""

from genus.can._plan.admission import Load, Plan, Share, Verdict, plan
from genus.can._plan.advice import Advice
from genus.can._plan.calendar import Calendar, Occurrence, Slot
from genus.can._plan.system import Bus, Channel, System, spell_system
from genus.can._plan.toml_reader import load_system, parse_system

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
