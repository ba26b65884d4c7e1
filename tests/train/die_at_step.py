"""Trains the tiny run and sends itself a signal after update N: FOLDER N SIGKILL."""

import os
import signal
import sys
from pathlib import Path

sys.path.insert(0, str(Path(__file__).parents[1]))

from support.tiny_run import tiny_config

from slicegraph.train import train
from slicegraph.train.checkpoints import RunCheckpoint

EVERY = 3


SAVE = RunCheckpoint.on_train_batch_end


def save_and_die(self, trainer, pl_module, *arguments):
    SAVE(self, trainer, pl_module, *arguments)
    if trainer.global_step == int(sys.argv[2]):
        os.kill(os.getpid(), getattr(signal, sys.argv[3]))


if __name__ == "__main__":
    RunCheckpoint.on_train_batch_end = save_and_die
    folder = Path(sys.argv[1])
    train(tiny_config(folder, checkpoint_steps=EVERY, ema=0.9), progress=False)
