"""The settings of a training run: their values, checks, defaults and recipes."""

import math
from collections.abc import Callable
from dataclasses import Field, asdict, dataclass, field, fields, replace
from functools import partial
from importlib import import_module
from pathlib import Path
from typing import Any

from slicegraph.extras import needs
from slicegraph.registry import TASK_PRESETS, task_domain

FILE_PREFIX, DEFAULT = "csv:", "mini"
NO_INIT, CHEM = "none", "slicegraph-chem"  # no weights, and those of the package
_HEADS = ("network", "ridge", "kernel")
SMALL_TABLE, _FEW_TARGETS = 5_000, 10  # rows and targets up to which a kernel is the default
_KINDS, _METRICS = ("regression", "binary", "multiclass"), ("mae", "rmse", "rocauc", "ap", "acc")
_PRECISIONS = ("32-true", "bf16-mixed", "16-mixed", "64-true")
_RANGES: dict[str, tuple[str, Callable[[float], bool]]] = {
    ">= 0": ("at least 0", lambda value: value >= 0),
    ">= 1": ("at least 1", lambda value: value >= 1),
    ">= 2": ("at least 2", lambda value: value >= 2),
    "> 0": ("more than 0", lambda value: value > 0),
    "[0, 1]": ("from 0 to 1", lambda value: 0 <= value <= 1),
    "[0, 1)": ("0 or more and less than 1", lambda value: 0 <= value < 1),
}
TABLE_ONLY = (
    *("smiles", "targets", "split", "fractions", "split_seed", "folds", "fold", "task", "metric"),
    *("standardize", "replicates", "censored", "allow_rejected", "features", "weight_column"),
)
COMPUTED_FEATURES = ("rdkit", "morgan")  # for any data set of molecules
_MOLECULES_ONLY = (*(name for name in TABLE_ONLY if name != "task"), "unit", "flag_steps")
_MOLECULES_ONLY += ("train_splits", "class_balance", "log_target", "repeats", "ensemble")
# Whoever gives one of these wants a network to be trained.
_NETWORK_ONLY = (
    *("preset", "model", "init", "dropout", "attention_dropout", "batch_size", "epochs", "lr"),
    *("device_batch_size", "min_steps", "max_steps", "warmup_steps", "end_lr", "weight_decay"),
    *("clip", "ema", "keep", "patience", "class_balance", "flag_steps", "accumulate", "top_k"),
    "optimizer",
)
PRETRAIN_SETTINGS = (  # those of a run that a pre-training has too
    *("preset", "model", "dropout", "attention_dropout", "batch_size", "epochs", "max_steps", "lr"),
    *("warmup_steps", "end_lr", "weight_decay", "optimizer", "clip", "seed", "threads"),
    "checkpoint_minutes",
)

# How a preset is trained. `_PAPER` are the settings of the Sliceformer and Graphormer papers on
# PCQM4M; ours train on as many molecules there, and give a small table at least 3,000 updates.
_COMMON: dict[str, Any] = {"batch_size": 256, "end_lr": 1e-6, "weight_decay": 0.01, "clip": 5.0}
_OURS = _COMMON | {"epochs": 75, "min_steps": 3_000}
_MINI = {"batch_size": 100, "epochs": 20, "min_steps": 1_800, "lr": 1.5e-3}
_SMALL = {"threads": 1, "optimizer": "muon"}  # matrices that are too small for several threads
_RECIPES = {
    "mini": _COMMON | _MINI | _SMALL,
    "rings": _COMMON | _MINI | _SMALL,
    "chem": _COMMON | _MINI | {"threads": 1, "lr": 1e-3},
    "slicegraph-slim": _OURS | {"lr": 1e-3},
    "slicegraph-small": _OURS | {"lr": 3e-4},
    "slicegraph-base": _OURS | {"lr": 2e-4},
}
# Training on a table from given weights. With few valid molecules, the last epoch with averaged
# weights is a safer choice than the epoch with the best score.
_TUNED: dict[str, Any] = {"keep": "last", "ema": 0.99}
_TUNED |= {"batch_size": 50, "epochs": 30, "min_steps": 1_000, "lr": 1e-3, "dropout": 0.1}
_PAPER = _COMMON | {"lr": 2e-4, "end_lr": 1e-9, "weight_decay": 0.0}
_PAPER |= {"max_steps": 1_000_000, "warmup_steps": 60_000}


def _setting(group: str, text: str, expected: Any = None, default: Any = None) -> Any:
    """A field with its help text; `expected` is a key of `_RANGES`, or the words to choose from.

    In the help text, {} stands for these words.
    """
    if isinstance(expected, tuple):
        text = text.format(f"{', '.join(expected[:-1])} or {expected[-1]}")
    return field(default=default, metadata={"group": group, "help": text, "expected": expected})


_data, _model, _training = (partial(_setting, name) for name in ("data", "model", "training"))
_run, _machine = (partial(_setting, name) for name in ("run", "machine"))


@dataclass(frozen=True)
class TrainConfig:
    """The settings of a run; :meth:`resolved` chooses those that are None.

    Every field is a flag of `slicegraph train` and a key of its YAML file; ``model`` is a mapping
    of fields of the model's configuration, on the command line ``--model.<field>``.

    A task by name, such as "digits", selects sequences or images. Then ``data`` is a file or
    folder of the user, if the task can read one, and None for the task's own data.

    Example:
        >>> TrainConfig(data="csv:solubility.csv", targets=("logS",), epochs=50).resolved().lr
        0.0015
    """

    data: str | None = _data("data set, csv:PATH, or a path for the task (default: mini)")
    root: str | None = _data(
        "folder of the prepared data sets (default: dataset; csv: a cache, see slicegraph info)"
    )
    smiles: str | None = _data(
        "csv: column of the SMILES or InChI, or columns A,B of several molecules a row (default: "
        "guessed)"
    )
    targets: tuple[str, ...] | None = _data(
        "csv: columns to predict, names with a comma in double quotes (default: the likely one)"
    )
    split: str | None = _data(
        "csv: random, stratified, scaffold, cluster, column:NAME, time:NAME or group:NAME; one "
        "molecule is never on two sides (default: random, for classes stratified)"
    )
    fractions: tuple[float, ...] | None = _data(
        "csv: fractions of train, valid and test (default: 0.8,0.1,0.1)"
    )
    split_seed: int | None = _data("csv: seed of the split (default: 0)", ">= 0")
    folds: int | None = _data(
        "csv: number of folds; each is the test split of a model of its own (default: none)",
        ">= 2",
    )
    fold: int | None = _data("csv: the only fold to train, from 1 (default: all)", ">= 1")
    repeats: int | None = _data(
        "csv: how many times to draw the folds, or the split, with a new seed (default: 1)", ">= 1"
    )
    ensemble: int | None = _data(
        "number of models of each split, whose mean is the prediction (default: 1)", ">= 1"
    )
    standardize: tuple[str, ...] | None = _data(
        "csv: steps of hydrogens,fragment,charge,tautomer, or all (default: none)"
    )
    replicates: str | None = _data(
        "csv: {} of the labels of one molecule (default: keep)",
        ("keep", "mean", "median"),
    )
    censored: str | None = _data(
        "csv: values such as >10: {}: leave them out, take 10, or train on the limit (default: "
        "stop)",
        ("drop", "value", "loss"),
    )
    allow_rejected: float | None = _data(
        "csv: share of unusable rows that does not stop the run (default: 0.05)", "[0, 1]"
    )
    features: tuple[str, ...] | None = _data(
        "rdkit or morgan, computed numbers that the head reads too; csv: rdkit, morgan and columns "
        "such as pH, which the head reads too (default: none)"
    )
    weight_column: str | None = _data(
        "csv: column of the weight of each row in the training loss (default: none)"
    )
    train_splits: tuple[str, ...] | None = _data(
        "splits to train on; with valid the last epoch is kept (default: train)"
    )
    task: str | None = _data(
        f"sequences and images: {', '.join(TASK_PRESETS)}; csv: regression, binary or multiclass "
        "(default: from the labels)"
    )
    examples: int | None = _data("examples of a generated task (default: from the task)", ">= 1")
    metric: str | None = _data("csv: {} (default: from the labels)", _METRICS)
    unit: str | None = _data("unit of the targets (default: from the data set)")

    preset: str | None = _model("size of the model and its training recipe (default: mini)")
    model: dict[str, Any] = field(
        default_factory=dict,
        metadata={"group": "model", "help": "fields that differ from the preset", "expected": None},
    )
    init: str | None = _model(
        "weights to start from: slicegraph-chem, a model, a run, Graphormer, or none (default: "
        "none; for another head than network slicegraph-chem)"
    )
    head: str | None = _model(
        "{}: trains the network, or solves its head in seconds (default: kernel for csv with "
        f"up to {SMALL_TABLE:,} rows and no settings of a network, else network)",
        _HEADS,
    )
    dropout: float | None = _model(
        "dropout probability in each encoder block (default: from the preset)", "[0, 1)"
    )
    attention_dropout: float | None = _model(
        "dropout probability of the attention weights (default: from the preset)", "[0, 1)"
    )

    batch_size: int | None = _training("samples in an update, over all devices", ">= 1")
    device_batch_size: int | None = _training(
        "samples of each device in an update, instead of batch_size", ">= 1"
    )
    accumulate: int = _training("parts of a batch, one after another to save memory", ">= 1", 1)
    epochs: int | None = _training("passes over the training split", ">= 1")
    min_steps: int | None = _training("least number of updates; adds epochs if necessary", ">= 0")
    max_steps: int | None = _training("number of updates, instead of epochs", ">= 1")
    lr: float | None = _training("learning rate at the peak of the schedule", "> 0")
    warmup_steps: int | None = _training("updates until the peak (default: 6 % of all)", ">= 0")
    end_lr: float | None = _training("learning rate of the last update", ">= 0")
    weight_decay: float | None = _training("weight decay of the matrices", ">= 0")
    optimizer: str | None = _training(
        "{}: Muon makes the updates of the matrices in the encoder orthogonal (default: from the "
        "preset)",
        ("adamw", "muon"),
    )
    clip: float | None = _training("maximum norm of the gradient; 0 for no limit", ">= 0")
    ema: float | None = _training(
        "decay of the average of the weights; 0 for none (default: csv with init 0.99, else 0)",
        "[0, 1)",
    )
    top_k: int = _training("best epochs to keep; the model is the mean of their weights", ">= 1", 1)
    standardise: bool = _training("train on (target - mean) / deviation (default: yes)", None, True)
    class_balance: bool = _training("weight classes so that each counts the same", None, False)
    log_target: bool = _training("train on the logarithm of the targets", None, False)
    flag_steps: int = _training("steps of adversarial noise on atoms (FLAG); 0 for none", ">= 0", 0)
    flag_size: float = _training("size of one such step", ">= 0", 0.001)
    keep: str | None = _training(
        "the model is that of the {} epoch (default: best on valid; csv with init: last)",
        ("best", "last"),
    )
    patience: int | None = _training(
        "epochs without a better score that end the run; 0 for no limit (csv: 50, else 0)",
        ">= 0",
    )
    seed: int = _training("seed of the initial weights, sample order and dropout", ">= 0", 0)

    out: str | None = _run("folder of the run (default: runs/DATE-DATA-PRESET)")
    checkpoint_minutes: float = _run("minutes between checkpoints", "> 0", 15.0)
    checkpoint_steps: int | None = _run(
        "updates between checkpoints (default: by time only)", ">= 1"
    )
    logger: str = _run("{}", ("csv", "tensorboard", "wandb"), "csv")
    accelerator: str = _machine("{}", ("cpu", "gpu", "cuda", "mps", "tpu", "auto"), "auto")
    devices: str = _machine("devices on each machine, or auto", default="auto")
    nodes: int = _machine("number of machines", ">= 1", 1)
    precision: str | None = _machine("{} (default: mixed on a GPU, else 32-true)", _PRECISIONS)
    workers: int | None = _machine(
        "processes that load data for a device (default: for a GPU 1 to 8, else 0)", ">= 0"
    )
    jobs: int | None = _machine(
        "models of folds, repeats and ensembles trained side by side (default: one a core)", ">= 1"
    )
    threads: int | None = _machine(
        "CPU threads of a process (default: 1 a core; mini and rings: 1)", ">= 1"
    )
    compile: bool | None = _machine("compile the model with torch.compile (default: on CUDA only)")

    def __post_init__(self) -> None:
        names: Any = self.smiles
        if isinstance(names, list | tuple):
            from slicegraph.data.columns import join_names

            object.__setattr__(self, "smiles", join_names(map(str, names)))
        for each in fields(self):
            object.__setattr__(self, each.name, _converted(each, getattr(self, each.name)))
        _check(self)

    @classmethod
    def from_dict(cls, values: dict[str, Any]) -> "TrainConfig":
        """Make a configuration from the values of a YAML file; raise for an unknown name."""
        known = [each.name for each in fields(cls)]
        if unknown := [name for name in values if name not in known]:
            raise ValueError(f"train: no setting {unknown[0]!r}; there are {', '.join(known)}")
        return cls(**values)

    @classmethod
    def read(cls, path: str | Path) -> "TrainConfig":
        """Read a YAML file."""
        return cls.from_dict(read_yaml(path))

    def to_yaml(self) -> str:
        """The text of a YAML file with every setting."""
        return _yaml().safe_dump(asdict(self), sort_keys=False, allow_unicode=True)

    @property
    def is_table(self) -> bool:
        """Whether the data is a table of the user."""
        return (self.data or "").startswith(FILE_PREFIX)

    @property
    def is_task(self) -> bool:
        """Whether the data is a task on sequences or images, and not molecules."""
        return self.task in TASK_PRESETS

    @property
    def start(self) -> Path | None:
        """The model that the run starts from, if there is one."""
        return None if self.init in (None, NO_INIT) else Path(self.init or "")

    @property
    def several(self) -> bool:
        """Whether there are several models to train: folds, repeats or an ensemble."""
        folds = self.folds is not None and self.fold is None
        return folds or (self.repeats or 1) > 1 or (self.ensemble or 1) > 1

    @property
    def trains_on_valid(self) -> bool:
        """Whether the valid split is trained on, so that its score cannot choose an epoch."""
        return "valid" in (self.train_splits or ())

    @property
    def is_solved(self) -> bool:
        """Whether the head is solved, and nothing is trained."""
        return self.head in ("ridge", "kernel")

    def default_head(self, rows: int | None) -> str:
        """The head of a table of so many rows; of anything else the network."""
        usual = TrainConfig()
        given = any(getattr(self, name) != getattr(usual, name) for name in _NETWORK_ONLY)
        given = given or self.censored == "loss" or "," in (self.smiles or "")  # several molecules
        given = given or (self.ensemble or 1) > 1
        small = self.is_table and not self.is_task and (rows or math.inf) <= SMALL_TABLE
        few = len(self.targets or ()) <= _FEW_TARGETS
        return "kernel" if small and few and not given else "network"

    def resolved(self, rows: int | None = None) -> "TrainConfig":
        """Choose what is None by the recipe of the preset; ``epochs`` overrides how long.

        Args:
            rows: of the table, if it is one and their number is known; small ones have a kernel.
        """
        if self.head is None:
            return replace(self, head=self.default_head(rows)).resolved()
        init = self.init
        if self.is_task:
            domain, preset = task_domain(), self.preset or TASK_PRESETS[self.task or ""]
            data, values = domain.named_files(self.data, self.task), domain.recipe(preset)
        else:
            chem = self.is_solved and not (self.preset or self.model)
            init = init or (CHEM if chem else NO_INIT)
            preset = self.preset or ("chem" if init == CHEM else DEFAULT)
            data, values = self.data or DEFAULT, _RECIPES.get(preset, _PAPER)
            if self.is_table and init != NO_INIT and preset in ("chem", DEFAULT):
                values = values | _TUNED
            if self.is_solved:
                values = values | {"max_steps": 1, "epochs": None, "min_steps": None}
        keep = self.keep or ("best" if self.patience else values.get("keep", "best"))
        patience = 50 if self.is_table and not self.trains_on_valid and keep == "best" else 0
        values = {"ema": 0.0, "optimizer": "adamw", "init": init, **values}
        values |= {"preset": preset, "patience": patience, "keep": keep}
        values |= {} if self.is_table else {"root": "dataset"}
        if self.epochs is not None or self.max_steps is not None:
            for name in ("epochs", "max_steps", "warmup_steps", "min_steps"):
                values.pop(name, None)
        if self.device_batch_size is not None:
            values.pop("batch_size", None)
        chosen = {name: value for name, value in values.items() if getattr(self, name) is None}
        if self.head == "kernel" and not set(self.features or ()) & set(COMPUTED_FEATURES):
            chosen["features"] = (*(self.features or ()), *COMPUTED_FEATURES)
        return replace(self, **(chosen | {"data": data}))


def _yaml() -> Any:
    with needs("slicegraph.train", "train"):
        yaml = import_module("yaml")
    return yaml


def read_yaml(path: str | Path) -> dict[str, Any]:
    """Read the names and values of a YAML file; raise if it is something else."""
    yaml = _yaml()
    try:
        values = yaml.safe_load(Path(path).read_text("utf-8"))
    except (yaml.YAMLError, UnicodeDecodeError) as error:
        reason = " ".join(str(error).split())
        raise ValueError(f"train: {path} is not a YAML file: {reason}") from None
    if values is None:
        return {}
    if not isinstance(values, dict) or not all(isinstance(name, str) for name in values):
        raise ValueError(f"train: {path} is a {type(values).__name__}, expected names and values")
    return values


def _check(config: TrainConfig) -> None:
    """Raise for values that exclude each other."""
    if config.devices != "auto" and not (config.devices.isdigit() and int(config.devices)):
        raise ValueError(f"train: devices = {config.devices!r}, expected a number or auto")
    if config.epochs is not None and config.max_steps is not None:
        raise ValueError("train: epochs and max_steps are given, expected one of them")
    if config.batch_size is not None and config.device_batch_size is not None:
        raise ValueError("train: batch_size and device_batch_size are given, expected one of them")
    if config.trains_on_valid and config.patience:
        raise ValueError(
            f"train: patience = {config.patience} needs the valid split, which train_splits trains "
            "on; leave out one of them"
        )
    if config.is_solved and (config.epochs or (config.max_steps or 1) > 1):
        given = "epochs" if config.epochs else "max_steps"
        raise ValueError(f"train: head = {config.head!r} is solved, not trained; leave out {given}")
    if config.head == "kernel" and (config.is_task or config.model.get("head_layers", 1) > 1):
        what = f"task {config.task!r}" if config.is_task else "model.head_layers"
        raise ValueError(f"train: head = 'kernel' is for molecules, one layer; leave out {what}")
    if config.head == "kernel" and (config.ensemble or 1) > 1:
        raise ValueError(
            f"train: head = 'kernel' and ensemble = {config.ensemble}: kernels of the same "
            "molecules are equal, whatever the seed; leave out ensemble, or choose folds"
        )
    if config.fold is not None and not 1 <= config.fold <= (config.folds or 0):
        raise ValueError(f"train: fold = {config.fold}, expected 1 to folds, the number of folds")
    if config.fold is not None and (config.repeats or 1) > 1:
        raise ValueError("train: fold and repeats are given, expected one of them")
    if config.is_task:
        names = [name for name in _MOLECULES_ONLY if getattr(config, name)]
        if names or config.is_table:
            name = names[0] if names else config.data
            raise ValueError(f"train: {name} is for molecules, not for task {config.task!r}")
        return
    if config.task is not None and config.task not in _KINDS:
        known = ", ".join([*TASK_PRESETS, *_KINDS])
        raise ValueError(f"train: there is no task {config.task!r}; there are {known}")
    if config.split == "all":
        raise ValueError("train: split = 'all' leaves nothing to test on; choose another")
    if config.examples is not None:
        raise ValueError("train: examples is for a task by name, such as listops")
    for name in () if config.is_table else (*TABLE_ONLY, "repeats"):
        if name == "features" and set(config.features or ()) <= set(COMPUTED_FEATURES):
            continue
        if getattr(config, name) is not None:
            raise ValueError(f"train: {name} is for a file of your own, data = {FILE_PREFIX}PATH")


def _converted(setting: Field, value: Any) -> Any:
    """Convert a value to the type of its field, parsing text, and raise if it is out of range."""
    kind = setting.type.__name__ if isinstance(setting.type, type) else str(setting.type)
    if value is None and "None" in kind:
        return None
    read, expected = next(reader for name, reader in _READERS.items() if kind.startswith(name))
    allowed = setting.metadata["expected"]
    try:
        found = read(value)
    except (ValueError, TypeError, OverflowError):
        raise ValueError(f"train: {setting.name} = {value!r}, expected {expected}") from None
    if allowed is None:
        return found
    words = isinstance(allowed, tuple)
    expected, fits = (", ".join(allowed), allowed.__contains__) if words else _RANGES[allowed]
    if not fits(found):
        raise ValueError(f"train: {setting.name} = {found!r}, expected {expected}")
    return found


def _plain(kind: type, value: Any) -> Any:
    """Convert a value to text or a finite number; not a truth value, and not a fraction to int."""
    if isinstance(value, bool | dict | list | tuple | None):
        raise ValueError
    found = kind(value)
    if kind is not str and not math.isfinite(found):
        raise ValueError
    if kind is int and isinstance(value, float) and found != value:
        raise ValueError
    return found


def _exactly(kind: type, value: Any) -> Any:
    if not isinstance(value, kind):
        raise ValueError
    return kind(value)


def _several(kind: type, value: Any) -> tuple:
    """Convert a list, or a text that is split at commas as in a CSV."""
    if not isinstance(value, list | tuple):
        from slicegraph.data.columns import split_names

        value = split_names(str(value))
    return tuple(_plain(kind, part.strip() if isinstance(part, str) else part) for part in value)


_READERS: dict[str, tuple[Callable[[Any], Any], str]] = {
    "tuple[str": (partial(_several, str), "names with commas between them"),
    "tuple[float": (partial(_several, float), "numbers with commas between them"),
    "dict": (partial(_exactly, dict), "names and values"),
    "bool": (partial(_exactly, bool), "true or false"),
    "int": (partial(_plain, int), "a whole number"),
    "float": (partial(_plain, float), "a number"),
    "str": (partial(_plain, str), "text"),
}
