"""`LocalPlan`: what reading without Spark opens and tests."""

import msgspec


class LocalPlan(msgspec.Struct, frozen=True):
    """What `LocalEvents` opens and tests; made by `LocalEvents.explain`, which reads footers of files and no events."""

    tests: str
    """The tests of the subscription."""
    families: dict[str, tuple[str, ...]]
    """The types whose events can match, by family."""
    counted_rows: int
    """Matching rows that the ledger counts, so that `count` opens no file for them."""
    files: int
    """Files that are opened, because the ledger does not exclude matches in them."""
    bytes: int
    """Their size."""
    lake_files: int
    """All files of the lake at this version."""
    lake_bytes: int
    row_groups: int
    """Row groups in the opened files."""
    row_groups_read: int
    """Row groups of which pages are read, because their statistics do not exclude matches."""
    row_groups_whole: int
    """Row groups among them all rows of which match by their statistics, so that nothing is tested."""
    row_group_bytes: int
    """The size of all columns of the row groups that are read; of these, only the columns needed are read."""

    def __str__(self) -> str:
        types = [f"  {family}: {', '.join(names)}" for family, names in self.families.items()]
        lines = [
            self.tests,
            "tables:",
            *(types or ["  none"]),
            f"counted by the ledger: {self.counted_rows:,} rows",
            f"opened: {self.files:,} files of {self.lake_files:,}, {self.bytes:,} bytes of {self.lake_bytes:,}",
            f"read: {self.row_groups_read:,} row groups of {self.row_groups:,}, at most {self.row_group_bytes:,} bytes",
            f"read without a test: {self.row_groups_whole:,} row groups",
        ]
        return "\n".join(lines)
