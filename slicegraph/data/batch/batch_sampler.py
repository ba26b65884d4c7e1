"""Which molecules make a batch: of like size, in a new order each epoch, each molecule once."""

from collections.abc import Iterator

import numpy as np
from torch import Tensor
from torch.utils.data import Sampler


class SizeGroupedBatchSampler(Sampler[list[int]]):
    """Batches of molecules of like size, so that little is padded, from an honest shuffle.

    All molecules are shuffled; then those of every ``window`` batches in a row are sorted by size
    and cut into batches; then the batches are shuffled. An epoch has every molecule exactly once.
    It depends on ``seed`` and the number of the epoch alone, and each iteration is another epoch.

    With several ranks a *global* batch of ``world * batch_size`` molecules is cut and dealt out:
    rank ``r`` gets every ``world``-th molecule of it from the ``r``-th on. So the ``b``-th batches
    of all ranks are together the ``b``-th batch of one process with ``world`` times the batch size,
    all ranks have equally many batches, and these have molecules of the same sizes.

    What does not fill a global batch is shared evenly with the batch before: the last two cut are
    the only smaller ones, and at least half full, so every rank gets something of each. Only with
    ``batch_size=1`` that would not do: there some ranks get two molecules in one of the batches.

    With ``parts`` each rank gets its share of a global batch in that many batches, one after the
    other, as for gradients that are summed before an update: ranks and parts together are dealt
    out to as ``world * parts`` ranks would be.

    Args:
        sizes: ``[N]``, the number of atoms of each molecule.
        batch_size: the molecules in a batch of one rank.
        shuffle: without it molecules keep their order, but for the sorting in each window.
        seed, rank, world: as for any other sampler; not negative. ``N`` must be at least
            ``world * parts``.
        drop_last: what does not fill a global batch sits out this epoch, others the next.
        window: how many global batches to sort together; 0 sorts nothing.
        parts: in how many batches a rank gets its share of a global batch.

    Example:
        >>> sampler = SizeGroupedBatchSampler([3, 9, 4, 8], batch_size=2, shuffle=False)
        >>> list(sampler)
        [[0, 2], [3, 1]]
    """

    def __init__(
        self,
        sizes: np.ndarray | Tensor | list[int],
        batch_size: int,
        shuffle: bool = True,
        seed: int = 0,
        rank: int = 0,
        world: int = 1,
        drop_last: bool = False,
        window: int = 32,
        parts: int = 1,
    ) -> None:
        self.sizes = np.asarray(sizes)
        self.batch_size, self.shuffle, self.seed = batch_size, shuffle, seed
        self.rank, self.world, self.window, self.parts = rank, world, window, parts
        self._check()
        self._shares = world * parts
        counts = _batch_counts(len(self.sizes), batch_size * self._shares, self._shares, drop_last)
        self._ptr = np.concatenate([[0], np.cumsum(counts, dtype=np.int64)])
        self.epoch, self._first = 0, 0

    def set_epoch(self, epoch: int) -> None:
        """The epoch that the next iteration gives; from its beginning, unless it was resumed."""
        if epoch != self.epoch:
            self.resume(epoch, 0)

    def resume(self, epoch: int, batch: int) -> None:
        """The next iteration leaves out the first `batch` batches of the epoch, and only it."""
        if epoch < 0 or not 0 <= batch <= len(self):
            raise ValueError(
                f"SizeGroupedBatchSampler: cannot resume at batch {batch} of epoch {epoch}, "
                f"an epoch has {len(self)}"
            )
        self.epoch, self._first = epoch, batch

    def __len__(self) -> int:
        """The batches of a whole epoch, whether it was resumed or not."""
        return (len(self._ptr) - 1) * self.parts

    def __iter__(self) -> Iterator[list[int]]:
        # A DataLoader with workers makes two iterators an epoch and begins one of them, so the
        # epoch passes when the first batch is asked for.
        molecules, batches = self._plan(self.epoch)
        turns = range(self._first, len(self))
        self.resume(self.epoch + 1, 0)
        for turn in turns:
            b, part = batches[turn // self.parts], turn % self.parts
            own = self._ptr[b] + self.rank + part * self.world
            yield molecules[own : self._ptr[b + 1] : self._shares].tolist()

    def _plan(self, epoch: int) -> tuple[np.ndarray, np.ndarray]:
        """The molecules, global batch after global batch, and the order of these."""
        molecules, batches = np.arange(len(self.sizes)), np.arange(len(self._ptr) - 1)
        if self.shuffle:
            random = np.random.default_rng((self.seed, epoch))
            random.shuffle(molecules)
            random.shuffle(batches)
        molecules = molecules[: self._ptr[-1]]
        if self.window:
            window = (np.arange(len(batches)) // self.window).repeat(np.diff(self._ptr))
            molecules = molecules[np.lexsort((self.sizes[molecules], window))]
        return molecules, batches

    def _check(self) -> None:
        name, count = type(self).__name__, len(self.sizes)
        least_values = {"batch_size": 1, "world": 1, "parts": 1, "seed": 0, "window": 0}
        for argument, least in least_values.items():
            if (value := getattr(self, argument)) < least:
                raise ValueError(f"{name}: {argument} = {value}, expected at least {least}")
        if not 0 <= self.rank < self.world:
            raise ValueError(f"{name}: rank = {self.rank} is not in 0..{self.world - 1}")
        if count < self.world * self.parts:
            parts = f" in {self.parts} parts each" if self.parts > 1 else ""
            raise ValueError(
                f"{name}: {count} molecules cannot be dealt out to {self.world} ranks{parts}; "
                f"use at most {count} ranks{' and parts' if parts else ''}"
            )


def _batch_counts(molecules: int, batch: int, shares: int, drop_last: bool) -> list[int]:
    """How many molecules each global batch has, with at least one for each share."""
    full, rest = divmod(molecules, batch)
    if drop_last and not full:
        raise ValueError(
            f"SizeGroupedBatchSampler: {molecules} molecules fill no batch of {batch}, and "
            "drop_last leaves out what does not fill one; use a smaller batch_size"
        )
    if drop_last or not rest:
        return [batch] * full
    if not full:
        return [rest]
    shared = batch + rest
    last = [shared - shared // 2, shared // 2] if shared // 2 >= shares else [shared]
    return [batch] * (full - 1) + last
