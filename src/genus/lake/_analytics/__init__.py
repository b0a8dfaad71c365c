"""Analyses of the events of a lake, with equal results in batch and on a stream.

A stream is a sequence of increments. An analysis returns the results that are final at an increment's watermark, and
the rows that wait, as a DataFrame, for the next increment. Batch is the case of a single increment.
"""
