"""Analyses over the events of a lake: the same functions in batch and on a stream.

A stream is a series of increments. An analysis gives out what is settled at an increment's watermark and hands the rest
on, as a DataFrame of rows that wait, to the next; so batch is the case of a single increment after which nothing comes.
"""

from genus.lake._analytics.analysis import (
    END,
    Analysis,
    Settled,
    is_late,
    is_overtaken,
    keep,
    moment,
    together,
    watermark_of,
)
from genus.lake._analytics.pairing import Choice, Pairing, pair, seconds
from genus.lake._analytics.walk import Walk, Walked
from genus.lake._analytics.windows import Statistic, Windows, windows

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
