"""Several runs on the two ranks of torchrun, one after another, in FOLDER.

`shared` and `parts` are to be compared with one process. `compiled` is `plain` in bfloat16, and
compiled by a backend that does not wait for a compiler of C++. `whole` is not interrupted; `died`
ends with an error on both ranks and is resumed, and so is `stopped`, which another process has
begun.
"""

import sys
from dataclasses import replace
from functools import partial
from pathlib import Path
from unittest import mock

import torch

sys.path.insert(0, str(Path(__file__).parents[1]))

from support.tiny_run import SORTING, tiny_config

import slicegraph
from slicegraph.train.callbacks import RunCheckpoint

SAVE = RunCheckpoint.on_train_batch_end


class Died(Exception):
    """Ends a run without saving anything more."""


def save_and_die(self, trainer, *arguments) -> None:
    SAVE(self, trainer, *arguments)
    if trainer.global_step == 7:
        raise Died


if __name__ == "__main__":
    folder = Path(sys.argv[1])
    shared = slicegraph.train.TrainConfig.read(folder / "shared.yaml")
    print(slicegraph.train(shared))
    parts = replace(shared, accumulate=2, out=str(folder / "parts"))
    slicegraph.train(parts, progress=False)
    plain = replace(shared, model=SORTING, out=str(folder / "plain"))
    slicegraph.train(plain, progress=False)
    compiled = replace(plain, compile=True, precision="bf16-mixed", out=str(folder / "compiled"))
    with mock.patch.object(torch, "compile", partial(torch.compile, backend="aot_eager")):
        slicegraph.train(compiled, progress=False)
    options = {"checkpoint_steps": 3, "ema": 0.9, "top_k": 2}
    slicegraph.train(tiny_config(folder, **options, out=str(folder / "whole")), progress=False)
    RunCheckpoint.on_train_batch_end = save_and_die
    try:
        slicegraph.train(tiny_config(folder, **options, out=str(folder / "died")), progress=False)
    except Died:
        RunCheckpoint.on_train_batch_end = SAVE
        slicegraph.train(resume=folder / "died", progress=False)
    slicegraph.train(resume=folder / "stopped" / "run", progress=False)
