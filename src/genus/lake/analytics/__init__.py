"""Analyses over the events of a lake: the same functions in batch and on a stream.

A stream is a series of increments. An analysis gives out what is settled at an increment's watermark and hands the rest
on, as a DataFrame of rows that wait, to the next; so batch is the case of a single increment after which nothing comes.
"""

from genus.lake.analytics.lateness import END, is_late, is_overtaken, moment, watermark_of
from genus.lake.analytics.pairing import Choice, Pairing, pair, seconds
from genus.lake.analytics.settling import Analysis, Settled, keep, together
from genus.lake.analytics.walk import Walk
from genus.lake.analytics.walking import Walked
from genus.lake.analytics.windows import Statistic, Windows, windows

__all__ = [
    "END",
    "Analysis",
    "Choice",
    "Pairing",
    "Settled",
    "Statistic",
    "Walk",
    "Walked",
    "Windows",
    "is_late",
    "is_overtaken",
    "keep",
    "moment",
    "pair",
    "seconds",
    "together",
    "watermark_of",
    "windows",
]
