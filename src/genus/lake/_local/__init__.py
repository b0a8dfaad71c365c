"""Small questions without Spark: events read in this process, by the ledger, Parquet statistics and the arrow target.

`LakeReader` opens a lake, `PartSelection` decides by the ledger which parts can have matches, `zones` what a predicate
can be on rows of which only bounds are known, and `scan` reads the row groups that are left.
"""
