"""A walk to test with: bursts of hits that follow each other closely."""

import pyarrow as pa

from genus.lake import WalkResult

GAP_US = 6
GIVES = pa.schema([("first", pa.int64()), ("hits", pa.int64())])


def bursts(rows: pa.Table, limit_us: int) -> WalkResult:
    """The first hit of each burst and the number of hits; the last burst waits while it may continue."""
    times = rows.column("_at_us").to_pylist()
    cuts = [n for n in range(1, len(times)) if times[n] - times[n - 1] > GAP_US]
    spans = list(zip([0, *cuts], [*cuts, len(times)], strict=True))
    ended = [span for span in spans if times[span[1] - 1] + GAP_US < limit_us]
    positions = rows.column("_position").to_pylist()
    found = {"first": [positions[start] for start, _ in ended], "hits": [end - start for start, end in ended]}
    return WalkResult(pa.table(found, GIVES), range(ended[-1][1] if ended else 0, len(times)))
