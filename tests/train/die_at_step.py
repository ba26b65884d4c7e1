"""Runs `slicegraph train` and sends itself a signal after update N: RANKS {FOLDER N SIGNAL}...

All ranks get SIGKILL, as if the machine had died; only the first gets another signal. Several runs
on one rank are made in forks of this process, which saves the time of the imports.
"""

import os
import signal
import sys
from pathlib import Path

sys.path.insert(0, str(Path(__file__).parents[1]))

from support.tiny_run import tiny_config

from slicegraph.cli import main
from slicegraph.train.callbacks import RunCheckpoint

SAVE = RunCheckpoint.on_train_batch_end


def run_and_die(ranks: str, folder: Path, step: int, name: str) -> int:
    def save_and_die(self, trainer, *arguments) -> None:
        SAVE(self, trainer, *arguments)
        if trainer.global_step == step and (trainer.is_global_zero or name == "SIGKILL"):
            os.kill(os.getpid(), getattr(signal, name))

    RunCheckpoint.on_train_batch_end = save_and_die
    settings = folder / f"settings{os.environ.get('LOCAL_RANK', '')}.yaml"
    config = tiny_config(folder, checkpoint_steps=3, ema=0.9, devices=ranks)
    settings.write_text(config.to_yaml())
    return main(["train", "--config", str(settings)])


if __name__ == "__main__":
    ranks, *words = sys.argv[1:]
    cases = [(Path(words[i]), int(words[i + 1]), words[i + 2]) for i in range(0, len(words), 3)]
    if len(cases) == 1:
        sys.exit(run_and_die(ranks, *cases[0]))
    import slicegraph.report
    import slicegraph.train.run  # noqa: F401

    for case in cases:
        if not (child := os.fork()):
            with open(case[0] / "stderr.txt", "w") as file:
                os.dup2(file.fileno(), 2)
            sys.exit(run_and_die(ranks, *case))
        (case[0] / "status.txt").write_text(str(os.waitstatus_to_exitcode(os.waitpid(child, 0)[1])))
