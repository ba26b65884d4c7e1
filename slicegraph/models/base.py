"""What all models share: checked configurations, and saving and loading.

A saved model is a folder with `config.json`, `model.safetensors` and a model card. A checkpoint of
a run, which Lightning writes, holds the same configuration and weights. No pickled code is ever
executed.
"""

import dataclasses
import json
from collections.abc import Callable, Collection, Sequence
from pathlib import Path
from typing import Any, TypeVar

import torch
import torch_geometric
from safetensors import SafetensorError, safe_open
from safetensors.torch import save
from torch import Tensor

from slicegraph import __version__
from slicegraph.files import write_atomically
from slicegraph.nn.slice_sort import Layer

CONFIG_FILE, WEIGHTS_FILE, CARD_FILE = "config.json", "model.safetensors", "README.md"
MEMBERS, _MEMBER = "members", "member-{}"  # the other models; the folder itself is the first
CARD_MARK = "<!-- written by slicegraph -->"  # a card without it is a user's
_NUMBERS: dict[Any, Any] = {int: (int, "a whole number"), float: ((int, float), "a number")}
SHIPPED = {"slicegraph-chem": Path(__file__).parent / "slicegraph-chem"}
"""The folders of the models that come with the package, by name."""
_FULL = {"load_as": "float32"}  # in a file of half precision whose model computes in single
ConfigType = TypeVar("ConfigType", bound="Config")
ModelType = TypeVar("ModelType", bound="Model")
Choice = Callable[[type[torch.nn.Module]], type[torch.nn.Module]]


@dataclasses.dataclass(frozen=True)
class Config:
    """A model configuration of plain values, which raises an error that names a wrong one."""

    @classmethod
    def from_dict(cls: type[ConfigType], values: dict[str, Any]) -> ConfigType:
        """Returns the configuration with these values, such as those of a JSON file."""
        known = [field.name for field in dataclasses.fields(cls)]
        for name in values:
            if name not in known:
                expected = f"expected one of {', '.join(known)}"
                raise ValueError(f"{cls.__name__}: unknown field {name!r}, {expected}")
        return cls(**values)

    def __post_init__(self) -> None:
        for field in dataclasses.fields(self):
            name, value = field.name, getattr(self, field.name)
            if isinstance(value, list):
                object.__setattr__(self, name, tuple(value))
            kinds, expected = _NUMBERS.get(field.type, (object, ""))
            if expected and (isinstance(value, bool) or not isinstance(value, kinds)):
                raise self._error(name, f", expected {expected}")
            if name.endswith("dropout") and not 0 <= value < 1:
                raise self._error(name, ", expected at least 0 and less than 1")

    def pick(self, *names: str) -> dict[str, Any]:
        """Returns some fields, to pass them on by name."""
        return {name: getattr(self, name) for name in names}

    def _check_at_least_one(self, *names: str) -> None:
        for name in names:
            if getattr(self, name) < 1:
                raise self._error(name, " must be at least 1")

    def _check_one_of(self, **known: Collection[str]) -> None:
        for name, names in known.items():
            if getattr(self, name) not in names:
                raise self._error(name, f", expected one of {', '.join(names)}")

    def _error(self, name: str, problem: str) -> ValueError:
        return ValueError(f"{type(self).__name__}: {name} = {getattr(self, name)!r}{problem}")


MODELS: dict[str, tuple[type["Model"], type[Config]]] = {}
"""The class and the configuration of each model by name, for :func:`load`."""


class Model(Layer):
    """A module that is made from a configuration, and that can be saved and loaded."""

    config: Any
    preset: Callable[..., Any]

    def __init_subclass__(
        cls,
        config: type[Config] | None = None,
        preset: Callable[..., Config] | None = None,
        **options: Any,
    ) -> None:
        super().__init_subclass__(**options)  # a PyTorchModelHubMixin has options of its own
        if config is not None and preset is not None:
            MODELS[cls.__name__], cls.preset = (cls, config), staticmethod(preset)

    @classmethod
    def from_preset(cls: type[ModelType], name: str, *options: str, **overrides: Any) -> ModelType:
        """Makes a new model from a preset, with the arguments of :func:`slicegraph.models.preset`,
        :func:`~slicegraph.models.sequence_preset` or :func:`~slicegraph.models.vision_preset`."""
        make: Callable[..., ModelType] = cls
        return make(cls.preset(name, *options, **overrides))

    def save(self, folder: str | Path, half: bool = False) -> None:
        """Writes ``config.json`` and ``model.safetensors``, for :func:`slicegraph.models.load`, and
        a model card, ``README.md``, with the facts of the configuration. A run of
        ``slicegraph train`` replaces the card by one with the data, the split and the scores.

        Args:
            folder: the folder to write to; created if it does not exist. A ``README.md`` that
                slicegraph has not written is left as it is.
            half: whether the file has the parameters in half precision; the loaded model computes
                in single precision.
        """
        folder = Path(folder)
        folder.mkdir(parents=True, exist_ok=True)
        tensors = {name: value.contiguous() for name, value in self.state_dict().items()}
        if half:
            for name, _ in self.named_parameters():  # sums over stored rows need full precision
                tensors[name] = tensors[name].to(torch.float16)
        write_atomically(folder / WEIGHTS_FILE, [save(tensors, _FULL if half else None)])
        # The configuration comes last: a folder that has it is whole.
        config = {"model": model_name(self), **dataclasses.asdict(self.config)}
        write_atomically(folder / CONFIG_FILE, [(json.dumps(config, indent=2) + "\n").encode()])
        card = folder / CARD_FILE
        if not card.exists() or CARD_MARK in card.read_text("utf-8", "replace"):
            write_atomically(card, [_card(self).encode()])


def _cast(tensor: Tensor, dtype: torch.dtype) -> Tensor:
    return tensor.to(dtype) if tensor.is_floating_point() else tensor


def _read_weights(file: Path, device: str) -> dict[str, Tensor]:
    with safe_open(file, "pt", device=device) as content:
        weights = {name: content.get_tensor(name) for name in content.keys()}  # noqa: SIM118
        full = (content.metadata() or {}).items() >= _FULL.items()
    return {name: _cast(x, torch.float32) for name, x in weights.items()} if full else weights


def versions() -> str:
    """Returns the versions that a model card states."""
    return f"slicegraph {__version__}, torch {torch.__version__}, PyG {torch_geometric.__version__}"


def card_text(title: str, facts: dict[str, Any], sections: dict[str, list[str]]) -> str:
    """Returns a model card: a table of the facts that are known, and sections of lines."""
    cells = {name: " ".join(str(text).replace("|", "\\|").split()) for name, text in facts.items()}
    rows = [f"| {name} | {cells[name]} |" for name, text in facts.items() if text]
    lines = [f"# {title}", "", "| | |", "|---|---|", *rows, ""]
    for heading, section in sections.items():
        lines += [f"## {heading}", "", *section, ""]
    return "\n".join([*lines, CARD_MARK, ""])


def _card(model: Model) -> str:
    """Returns the card of a model whose training is not known."""
    fields = dataclasses.asdict(model.config)
    names = ("task", "unit", "class_names", "standardize", "mixer", "num_layers", "channels")
    targets = ", ".join(fields.get("target_names", ())) or "targets without names"
    facts = {"predicts": targets} | {name: fields.get(name) for name in names}
    facts |= {name: ", ".join(x) for name, x in facts.items() if isinstance(x, tuple)}
    facts["parameters"] = f"{sum(p.numel() for p in model.parameters()):,}"
    code = ["from slicegraph.models import load", "", 'model = load("model")  # this folder']
    limits = (
        "The data, the split and the scores of the training are not recorded: the model was saved "
        "by\n`model.save`, not by a run of `slicegraph train`. Nothing is known of how well it "
        "predicts."
    )
    sections = {"Use": ["```python", *code, "```"], "Limits": [limits]}
    return card_text(f"{model_name(model)}: {targets}", facts | {"made with": versions()}, sections)


def model_name(model: torch.nn.Module) -> str:
    """Returns the name in :obj:`MODELS` of a model or of an instance of a subclass."""
    known = (name for name, (kind, _) in MODELS.items() if isinstance(model, kind))
    return next(known, type(model).__name__)


def load(path: str | Path, device: str | torch.device = "cpu", choose: Choice | None = None) -> Any:
    """Loads a saved model, in evaluation mode.

    Args:
        path: a folder that ``model.save(folder)`` wrote, the folder of a run, a checkpoint of a
            run (``RUN/checkpoints/best.ckpt``), or a name of :obj:`SHIPPED`.
        device: the device of the weights.
        choose: maps the class of the saved model to the class to make: the same, or a subclass.

    Example:
        >>> model = GraphSliceformer.from_preset("mini")
        >>> model.save("mini")
        >>> load("mini").config == model.config
        True
    """
    place = find_model(path)
    config, weights = read_checkpoint(place) if place.is_file() else (read_config(place), None)
    if (name := config.pop("model", None) or _model_of(config)) not in MODELS:
        where = place if place.is_file() else place / CONFIG_FILE
        raise ValueError(f"load: {where} is of model {name!r}, expected {', '.join(MODELS)}")
    saved_class, config_class = MODELS[name]
    model = (choose(saved_class) if choose else saved_class)(config_class.from_dict(config))
    if weights is None:
        if not (file := place / WEIGHTS_FILE).is_file():
            raise FileNotFoundError(f"load: {place} has no {file.name}, expected a saved model")
        try:
            weights = _read_weights(file, str(device))
        except SafetensorError as error:
            raise ValueError(f"load: {file} is damaged ({error})") from None
    dtypes = {value.dtype for value in weights.values() if value.is_floating_point()}
    model.to(device, dtypes.pop() if len(dtypes) == 1 else None)
    try:
        model.load_state_dict(weights)
    except RuntimeError as error:
        raise ValueError(f"load: {place} does not fit its configuration: {error}") from None
    return model.eval()


def _model_of(config: dict[str, Any]) -> str | None:
    """Returns the model whose configuration has these fields; Hub mixins save no name."""
    for name, (_, kind) in MODELS.items():
        if config.keys() and config.keys() <= {field.name for field in dataclasses.fields(kind)}:
            return name
    return None


def find_model(path: str | Path) -> Path:
    """Returns the folder of the model, or the checkpoint file, that a path or name leads to."""
    path = SHIPPED.get(str(path)) or Path(path)
    if path.is_file():
        return path
    for folder in (path, path / "model"):
        if (folder / CONFIG_FILE).is_file():
            return folder
    if (best := path / "checkpoints" / "best.ckpt").is_file():
        return best
    if (path / "config.yaml").is_file():
        remedy = f"go on with it by slicegraph train --resume {path}"
        raise FileNotFoundError(f"load: the run {path} has no model yet; {remedy}")
    raise FileNotFoundError(
        f"load: there is no model in {path}, expected the folder of a run (with model/), of a "
        f"saved model (with {CONFIG_FILE}), a checkpoint file, or {' or '.join(SHIPPED)}"
    )


def read_config(path: str | Path) -> dict[str, Any]:
    """Returns the configuration of the model at a path, with its name under ``"model"``."""
    place = find_model(path)
    if place.is_file():
        return read_checkpoint(place)[0]
    try:
        config = json.loads((place / CONFIG_FILE).read_text())
        if not isinstance(config, dict):
            raise ValueError(f"a {type(config).__name__}, expected an object")
        config.pop("training", None)  # what a run adds for people
        config.pop(MEMBERS, None)
    except ValueError as error:
        raise ValueError(f"load: {place / CONFIG_FILE} is damaged ({error})") from None
    return config


def member_folders(place: Path) -> list[Path]:
    """Returns the folders of the other models of the ensemble that is saved in a folder."""
    content = json.loads((place / CONFIG_FILE).read_text())
    folders = [place / _MEMBER.format(number) for number in range(2, content.get(MEMBERS, 1) + 1)]
    for folder in folders:
        if not (folder / CONFIG_FILE).is_file():
            raise FileNotFoundError(
                f"load: {place} is an ensemble of {len(folders) + 1} models, and {folder.name} is "
                "missing; copy the whole folder"
            )
    return folders


def save_members(folder: Path, models: Sequence[Model]) -> None:
    """Writes an ensemble: the first model as any other, the others in folders below it."""
    for number, model in enumerate(models, start=1):
        model.save(folder if number == 1 else folder / _MEMBER.format(number))
    path = folder / CONFIG_FILE
    content = json.loads(path.read_text()) | {MEMBERS: len(models)}
    write_atomically(path, [(json.dumps(content, indent=2) + "\n").encode()])


def read_checkpoint(path: Path) -> tuple[dict[str, Any], dict[str, Tensor]]:
    """Returns the configuration and the weights of the model in a checkpoint of a run."""
    try:
        found = torch.load(path, map_location="cpu", weights_only=True)
    except (OSError, MemoryError):
        raise
    except Exception:  # a damaged file raises errors of a dozen kinds
        raise ValueError(
            f"load: {path} is no checkpoint of a run, or damaged; name the folder of a run or of a "
            "saved model, or a checkpoint"
        ) from None
    try:
        config, tensors = found["hyper_parameters"]["model"], found["state_dict"]
        weights = {
            name.removeprefix("model.").replace("_orig_mod.", ""): value
            for name, value in tensors.items()
            if name.startswith("model.")
        }
        return {"model": "GraphSliceformer", **config}, weights
    except (KeyError, TypeError, AttributeError):
        raise ValueError(
            f"load: {path} is a checkpoint of something else: no hyper_parameters of a model"
        ) from None
