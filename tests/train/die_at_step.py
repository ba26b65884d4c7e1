"""Trains the tiny run and sends itself a signal after update N: FOLDER N SIGKILL RANKS.

All ranks get SIGKILL, as if the machine had died; only the first gets another signal.
"""

import os
import signal
import sys
from pathlib import Path

sys.path.insert(0, str(Path(__file__).parents[1]))

from support.tiny_run import tiny_config

from slicegraph.cli import main
from slicegraph.train.checkpoints import RunCheckpoint

EVERY = 3


SAVE = RunCheckpoint.on_train_batch_end


def save_and_die(self, trainer, pl_module, *arguments):
    SAVE(self, trainer, pl_module, *arguments)
    number = getattr(signal, sys.argv[3])
    if trainer.global_step == int(sys.argv[2]) and (
        trainer.is_global_zero or number == signal.SIGKILL
    ):
        os.kill(os.getpid(), number)


if __name__ == "__main__":
    RunCheckpoint.on_train_batch_end = save_and_die
    folder, ranks = Path(sys.argv[1]), sys.argv[4]
    settings = folder / f"settings{os.environ.get('LOCAL_RANK', '')}.yaml"
    settings.write_text(
        tiny_config(folder, checkpoint_steps=EVERY, ema=0.9, devices=ranks).to_yaml()
    )
    sys.exit(main(["train", "--config", str(settings)]))
