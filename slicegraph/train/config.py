"""Every setting of a training run, as a dataclass."""

from dataclasses import asdict, dataclass, field, fields, replace
from pathlib import Path
from typing import Any

import yaml

from slicegraph.train.recipes import recipe
from slicegraph.train.setting import DEFAULT, FILE_PREFIX, check_settings, convert
from slicegraph.train.task_files import named_files
from slicegraph.train.task_presets import TASK_PRESETS

_NAME = "train"


def _setting(default: Any, text: str, group: str) -> Any:
    return field(default=default, metadata={"help": text, "group": group})


@dataclass(frozen=True)
class TrainConfig:
    """The settings of a run; what is None is chosen by :meth:`resolved`.

    Every field is a flag of `slicegraph train` and a key of its YAML file; ``model`` is a mapping
    of fields of the model's configuration, on the command line ``--model.<field>``.

    A task by name, such as "digits", chooses data of sequences or images; then ``data`` is a file
    or folder of the user's own, if the task reads one, and None for the data that the task has.

    Example:
        >>> TrainConfig(data="csv:solubility.csv", targets=("logS",), epochs=50).resolved().lr
        0.0015
    """

    data: str | None = _setting(
        None, "a data set by name, csv:PATH, or files of the task (mini)", "data"
    )
    root: str = _setting("dataset", "the folder of the data sets", "data")
    smiles: str | None = _setting(None, "csv: the column of the SMILES", "data")
    targets: tuple[str, ...] | None = _setting(None, "csv: the columns to predict", "data")
    split: str | None = _setting(None, "csv: random or scaffold", "data")
    fractions: tuple[float, ...] | None = _setting(None, "csv: of train, valid, test", "data")
    split_seed: int | None = _setting(None, "csv: of the random split", "data")
    task: str | None = _setting(
        None, f"{', '.join(TASK_PRESETS)}; csv: regression, binary, multiclass", "data"
    )
    examples: int | None = _setting(None, "how many, of a generated task", "data")
    metric: str | None = _setting(None, "csv: mae, rmse, rocauc, ap or acc", "data")
    unit: str | None = _setting(None, "the unit of the targets", "data")

    preset: str | None = _setting(
        None, "the size of the model, and how it is trained (mini)", "model"
    )
    model: dict[str, Any] = field(
        default_factory=dict, metadata={"help": "what differs from the preset", "group": "model"}
    )
    init: str | None = _setting(None, "start from a saved model, a run or a Graphormer", "model")
    dropout: float | None = _setting(None, "of the branches of a block", "model")
    attention_dropout: float | None = _setting(None, "of the softmax", "model")

    batch_size: int | None = _setting(None, "molecules in an update, all devices", "training")
    accumulate: int = _setting(1, "cut each batch into this many", "training")
    epochs: int | None = _setting(None, "how long to train", "training")
    min_steps: int | None = _setting(None, "more epochs if these updates take them", "training")
    max_steps: int | None = _setting(None, "how long to train, in updates", "training")
    lr: float | None = _setting(None, "the highest learning rate", "training")
    warmup_steps: int | None = _setting(None, "until the highest; 6 % if not given", "training")
    end_lr: float | None = _setting(None, "the learning rate of the last update", "training")
    weight_decay: float | None = _setting(None, "of matrices", "training")
    clip: float | None = _setting(None, "the largest norm of the gradient; 0: any", "training")
    ema: float = _setting(0.0, "decay of the average of the weights; 0: none", "training")
    standardise: bool = _setting(True, "train on (target - mean) / deviation", "training")
    flag_steps: int = _setting(0, "steps of adversarial noise on atoms; 0: none", "training")
    flag_size: float = _setting(0.001, "the size of one such step", "training")
    patience: int | None = _setting(None, "stop after epochs without progress; 0: no", "training")
    seed: int = _setting(0, "of weights, order and dropout", "training")

    out: str | None = _setting(None, "the folder of the run; runs/DATE-... if not given", "run")
    checkpoint_steps: int = _setting(1000, "updates between two checkpoints", "run")
    logger: str = _setting("csv", "csv, tensorboard or wandb", "run")
    accelerator: str = _setting("auto", "cpu, gpu, or what there is", "machine")
    devices: str = _setting("auto", "how many, on each node", "machine")
    nodes: int = _setting(1, "how many machines", "machine")
    precision: str | None = _setting(None, "32-true, bf16-mixed or 16-mixed", "machine")
    workers: int = _setting(0, "processes that load data", "machine")
    threads: int | None = _setting(None, "of each process, on the CPU; one a core", "machine")
    compile: bool = _setting(False, "torch.compile the model", "machine")

    def __post_init__(self) -> None:
        for each in fields(self):
            object.__setattr__(self, each.name, convert(each, getattr(self, each.name)))
        check_settings(self)

    @classmethod
    def from_dict(cls, values: dict[str, Any]) -> "TrainConfig":
        """The settings of a YAML file or a command line; an unknown one is refused by name."""
        known = [each.name for each in fields(cls)]
        for name in values:
            if name not in known:
                raise ValueError(
                    f"{_NAME}: there is no setting {name!r}; there are {', '.join(known)}"
                )
        return cls(**values)

    @classmethod
    def read(cls, path: str | Path) -> "TrainConfig":
        """The settings in a YAML file."""
        return cls.from_dict(read_yaml(path))

    def to_yaml(self) -> str:
        """The text of the YAML file, with every setting."""
        plain = {
            name: list(value) if isinstance(value, tuple) else value
            for name, value in asdict(self).items()
        }
        return yaml.safe_dump(plain, sort_keys=False, allow_unicode=True)

    @property
    def is_table(self) -> bool:
        """Whether the data is a table of the user's own."""
        return (self.data or "").startswith(FILE_PREFIX)

    def resolved(self) -> "TrainConfig":
        """With what was left open chosen by the preset and the data."""
        data: str | None = self.data or DEFAULT
        preset = DEFAULT
        if self.task in TASK_PRESETS:
            data, preset = named_files(self.data, self.task), TASK_PRESETS[self.task]
        named = replace(self, data=data, preset=self.preset or preset)
        chosen = {
            name: value
            for name, value in recipe(named).items()
            if getattr(named, name) is None and value is not None
        }
        return replace(named, **chosen)


def read_yaml(path: str | Path) -> dict[str, Any]:
    """The names and values in a YAML file; text that is no YAML is refused."""
    try:
        values = yaml.safe_load(Path(path).read_text("utf-8"))
    except (yaml.YAMLError, UnicodeDecodeError) as error:
        raise ValueError(f"{_NAME}: {path} is no YAML: {' '.join(str(error).split())}") from None
    if values is None:
        return {}
    if not isinstance(values, dict) or not all(isinstance(name, str) for name in values):
        raise ValueError(f"{_NAME}: {path} is a {type(values).__name__}, expected names and values")
    return values
