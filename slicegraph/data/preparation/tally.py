"""What has been prepared so far, and how to say that it ended there."""

import errno
from collections import Counter
from pathlib import Path

from slicegraph.data.preparation.chunk import ChunkReport
from slicegraph.data.preparation.worker_pool import WorkerDied
from slicegraph.data.store.part import Rejection

AGAIN = "what is done is kept, and the same command goes on from there"
_NO_ROOM = (errno.ENOSPC, getattr(errno, "EDQUOT", errno.ENOSPC))


class Tally:
    """What the chunks that are done amount to."""

    def __init__(self) -> None:
        self.chunks = self.rows = self.kept_rows = self.rejected = 0
        self.lengths: Counter[str] = Counter()
        self.first_rejection: Rejection | None = None

    def add(self, report: ChunkReport) -> None:
        self.chunks += 1
        self.rows += report.rows
        self.kept_rows += report.rows if report.kept else 0
        self.rejected += report.rejected
        self.lengths.update(report.lengths)
        self.first_rejection = self.first_rejection or report.first_rejection

    def describe(self) -> str:
        return f"{self.rows:,} rows, {self.rejected:,} rejected"

    def no_molecule(self, source: str) -> str:
        if self.first_rejection is None:
            return f"{source!r} has no rows"
        return (
            f"{source!r} has no molecule: all {self.rows:,} rows are bad, "
            f"the first is {bad_row(self.first_rejection)}"
        )

    def cannot_write(self, folder: Path, error: OSError) -> str:
        problem = str(error)
        if error.errno in _NO_ROOM:
            problem = f"no room is left on the disk of {str(folder)!r}"
        return f"{problem}, after {self.rows:,} rows; {AGAIN}"

    def worker_died(self, error: WorkerDied) -> str:
        first, last = error.item.first_row, error.item.first_row + len(error.item.rows) - 1
        return (
            f"{error} in rows {first} to {last}, after {self.rows:,} rows; if memory ran out, use "
            f"fewer workers; {AGAIN}"
        )


def bad_row(rejection: Rejection) -> str:
    """Row 0 is the first after the header."""
    return f"row {rejection.row}: {rejection.text!r}: {rejection.reason}"
