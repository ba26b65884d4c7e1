"""Pre-training without labels: an encoder learns to predict what RDKit computes for molecules.

The folder of a pre-training has `data` (the corpus, its store and its numbers), `pretraining.json`
(the settings), `checkpoint.pt`, `log.csv` and, at the end, `model`, which `slicegraph train --init`
starts from and `slicegraph embed` reads.
"""

import csv
import io
import json
import math
import signal
import time
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import numpy as np
import torch
from torch import Tensor
from torch.nn import functional

from slicegraph.data.batch import molecule_loader
from slicegraph.data.descriptors import (
    FRAGMENTS,
    MORGAN_BITS,
    MOST_RING,
    UNKNOWN,
    ComputedNumbers,
    NormalScores,
    compute_descriptors,
)
from slicegraph.data.molecules import molecule_keys
from slicegraph.data.prepare import prepare
from slicegraph.data.smiles import is_text
from slicegraph.data.store import META, MoleculeStore, read_meta
from slicegraph.data.table import cut, open_table
from slicegraph.files import sha256_of, write_atomically
from slicegraph.models import GraphSliceformer, preset
from slicegraph.models.base import WEIGHTS_FILE, card_text, versions
from slicegraph.predict.predictor import encoding_of
from slicegraph.train.callbacks import Stopped
from slicegraph.train.config import DEFAULT, PRETRAIN_SETTINGS, TrainConfig
from slicegraph.train.machine import (
    AtomicCheckpointIO,
    cpu_threads,
    fast_products,
    freed_memory_kept,
    say,
)
from slicegraph.train.optimizer import make_optimizer, warmup_and_decay

MASKED_MOLECULES, MASKED_ATOMS = 0.25, 0.15  # the share of molecules, and of atoms in these
HELD_OUT, MOST_HELD_OUT = 0.05, 5_000  # the share and the largest number never trained on
EVALUATIONS = 20  # of the held-out molecules in a run
LOSSES = {
    "descriptors": "squared error of the normal scores of RDKit's 2D descriptors",
    "fragments": f"Poisson deviance of the counts of {len(FRAGMENTS)} functional groups",
    "morgan": f"Poisson deviance of the counts of {MORGAN_BITS} Morgan bits",
    "atoms": "cross entropy of OGB's features of masked atoms",
    "bonds": "cross entropy of OGB's features of the bonds of masked atoms",
    "rings": "cross entropy of the size of each atom's smallest ring",
    "charges": "squared error of each atom's Gasteiger charge, standardised",
}
_SAMPLE, _FEW = 50_000, 2_000  # training molecules for the normal scores, for the constants
_LARGEST_LOG = 5.0  # of a predicted count
_CHECKPOINT = "checkpoint.pt"


@dataclass(frozen=True)
class PretrainResult:
    """A finished pre-training: its folder, that of the model, and the facts of the model card."""

    folder: Path
    model: Path
    record: dict[str, Any]


def pretrain(
    sources: Sequence[str | Path],
    out: str | Path,
    config: TrainConfig | None = None,
    *,
    data: str | Path | None = None,
    smiles: str | None = None,
    exclude: Sequence[str | Path] = (),
    limit: int | None = None,
    licence: str = "",
    half: bool = False,
    workers: int | None = None,
    device: str = "cpu",
    command: str = "",
    progress: bool = True,
) -> PretrainResult:
    """Pre-train an encoder on the numbers that RDKit computes for molecules.

    The loss is the mean of all `LOSSES`, each divided by the loss of the best constant prediction
    on training molecules: every one of them is about 1 in the beginning, and 0 would be perfect.
    A quarter of the molecules has masked atoms, and no loss for the molecule as a whole. After an
    interruption the same call goes on from there and, on a CPU, ends with the same weights.

    Args:
        sources: files of molecules, as :func:`slicegraph.data.table.open_table` takes them, or
            stores. A molecule that occurs several times is used once.
        out: the folder of the pre-training; new, or that of an interrupted call.
        config: the settings, of which `PRETRAIN_SETTINGS` are read (default: 5 epochs of ``mini``).
        data: the folder of the corpus and its numbers, which several pre-trainings of the same
            sources may share (default: ``data`` in `out`).
        smiles: the column of the SMILES in the files; guessed by default.
        exclude: files whose molecules are left out, such as those of a test.
        limit: the largest number of training molecules; those held out do not depend on it.
        licence: the licence of the sources, for the model card.
        half: whether the model is saved in half precision.
        workers: how many processes read molecules and compute numbers.
        device: where the model is trained.
        command: the command that repeats it, for the model card.
        progress: whether to show what is done.

    Example:
        >>> result = pretrain(["molecules.csv"], "runs/pretrained", TrainConfig(epochs=5))
        >>> slicegraph.train(TrainConfig(data="csv:my.csv", init=str(result.model)))
    """
    config, out = config or TrainConfig(), Path(out)
    if config.epochs is None and config.max_steps is None:
        config = replace(config, epochs=5)
    config, data = config.resolved(), out / "data" if data is None else Path(data)
    fields = preset(config.preset or DEFAULT, **config.model)
    if fields.token:
        problem = "readout = 'token' has no vectors of atoms"
        raise ValueError(f"pretrain: {problem}; choose --model.readout quantiles")
    if fields.rings:
        problem = f"rings = {fields.rings} adds nodes that are no atoms"
        raise ValueError(f"pretrain: {problem}; choose --model.rings 0")
    identities = [[_identity(Path(path)) for path in paths] for paths in (sources, exclude)]
    record: dict[str, Any] = {name: getattr(config, name) for name in PRETRAIN_SETTINGS}
    record |= {"sources": identities[0], "exclude": identities[1], "smiles": smiles}
    record |= {"limit": limit, "licence": licence}
    _begin(out, record)
    store, ends = _read_corpus(sources, data, smiles, workers, progress)
    numbers = compute_descriptors(store, data / "numbers", workers=workers, progress=progress)
    texts = (text for path in exclude for part in _texts(path, smiles) for text in part if text)
    splits, left_out = _split(numbers, molecule_keys(texts), limit)
    record["molecules"] = {name: len(part) for name, part in splits.items()}
    record["left_out"] = {"cannot be read": store.meta["rejected"], **left_out}
    rows = store.rows[splits["train"]]
    for source, first, end in zip(identities[0], [0, *ends], ends, strict=False):
        source |= {"rows": end - first, "trained": int(((first <= rows) & (rows < end)).sum())}
    products = fast_products(torch.device(device).type, "32-true")
    with cpu_threads(config.threads), freed_memory_kept(), products:
        options: Any = {"splits": splits, "out": out, "device": device, "progress": progress}
        run = _Run(config, store, numbers, **options)
        record |= run.train() | {"command": command, "date": time.strftime("%Y-%m-%d")}
    run.model.save(out / "model", half)
    record["weights_sha256"] = sha256_of(out / "model" / WEIGHTS_FILE)
    path = out / "model" / "config.json"
    content = {**json.loads(path.read_text("utf-8")), "training": record}
    write_atomically(path, [(json.dumps(content, indent=2) + "\n").encode()])
    write_atomically(out / "model" / "README.md", [_card(record).encode()])
    return PretrainResult(out, out / "model", record)


def _identity(path: Path) -> dict[str, Any]:
    if (path / META).is_file():
        return {"name": path.name, "sha256": read_meta(path)["files"]["smiles.npy"]["sha256"]}
    if not path.is_file():
        raise FileNotFoundError(f"pretrain: there is no file or store {str(path)!r}")
    return {"name": path.name, "sha256": sha256_of(path)}


def _begin(out: Path, job: dict[str, Any]) -> None:
    """Make the folder; raise if it is that of another pre-training, or of something else."""
    path, now = out / "pretraining.json", json.loads(json.dumps(job))
    if not path.is_file():
        if out.is_dir() and any(out.iterdir()):
            raise FileExistsError(f"pretrain: {out} is not empty; choose another --out")
        out.mkdir(parents=True, exist_ok=True)
        write_atomically(path, [json.dumps(now, indent=2).encode()])
    before = json.loads(path.read_text("utf-8"))
    for name in (name for name in now if before.get(name) != now[name]):
        values = f"{name} = {before.get(name)!r}, not {now[name]!r}"
        raise ValueError(f"pretrain: {out} was begun with {values}; choose another --out")


def _texts(source: str | Path, smiles: str | None) -> Iterator[list[str]]:
    """Yield the SMILES of a file or store in parts, "" for a row that cannot be read."""
    if (Path(source) / META).is_file():
        store = MoleculeStore(source)
        yield list(map(store.smiles, range(len(store))))
        return
    for chunk in cut(open_table(source, smiles, labels=()), 4096):
        yield ["" if row.problem or not is_text(row.text) else row.text for row in chunk.rows]


def _read_corpus(
    sources: Sequence[str | Path],
    folder: Path,
    smiles: str | None,
    workers: int | None,
    progress: bool,
) -> tuple[MoleculeStore, list[int]]:
    """Join all sources in one table and prepare it; return the row after the last of each."""
    table, facts = folder / "corpus.csv", folder / "corpus.json"
    identities, ends = [_identity(Path(source)) for source in sources], list[int]()

    def blocks() -> Iterator[bytes]:
        count = 0
        yield b"smiles\n"
        for source in sources:
            for part in _texts(source, smiles):
                yield "".join('"' + text.replace('"', '""') + '"\n' for text in part).encode()
                count += len(part)
            ends.append(count)

    if not facts.is_file():
        folder.mkdir(parents=True, exist_ok=True)
        write_atomically(table, blocks())
        write_atomically(facts, [json.dumps({"sources": identities, "ends": ends}).encode()])
    found = json.loads(facts.read_text("utf-8"))
    if found["sources"] != identities:
        raise ValueError(f"pretrain: {folder} has other sources; choose another --data")
    options: dict[str, Any] = {"workers": workers, "progress": progress}
    prepare(table, folder / "store", smiles="smiles", labels=[], **options)
    return MoleculeStore(folder / "store"), found["ends"]


def _split(
    numbers: ComputedNumbers, excluded: np.ndarray, limit: int | None
) -> tuple[dict[str, np.ndarray], dict[str, int]]:
    """Return the positions to train on and to hold out; and how many molecules are left out.

    Molecules are in the order of their keys, which are hashes: a molecule is on one side only, and
    the side does not depend on the order of the sources.
    """
    keys = np.array(numbers.molecules["key"])
    known = int(np.count_nonzero(keys))
    unique, first = np.unique(keys, return_index=True)
    used = first[(unique > 0) & ~np.isin(unique, excluded)]
    held = min(MOST_HELD_OUT, math.ceil(HELD_OUT * len(used)))
    splits = {"train": used[held:][:limit], "held_out": used[:held]}
    if not len(splits["train"]):
        raise ValueError(f"pretrain: {len(used)} molecules are left, expected at least 2")
    different = int(np.count_nonzero(unique))
    left_out = {"without numbers": len(keys) - known, "repeated": known - different}
    left_out |= {"excluded": different - len(used)}
    left_out |= {"beyond the limit": len(used) - sum(map(len, splits.values()))}
    return splits, left_out


class Heads(torch.nn.Module):
    """The linear heads of the pre-training, except that of the descriptors: the model's own.

    Args:
        model: the encoder; its readout must not be a token, which leaves out the atoms.
    """

    def __init__(self, model: GraphSliceformer) -> None:
        super().__init__()
        config = model.config
        self.sizes: dict[str, tuple[int, ...]] = {
            "atoms": config.node_vocabulary or (),
            "bonds": config.edge_vocabulary or (),
            "rings": (MOST_RING + 1,),
        }
        linear, graph = torch.nn.Linear, model.readout.out_channels
        self.fragments, self.morgan = linear(graph, len(FRAGMENTS)), linear(graph, MORGAN_BITS)
        for name, sizes in self.sizes.items():
            setattr(self, name, linear(config.channels, sum(sizes)))
        self.charges = linear(config.channels, 1)
        for layer in self.children():
            torch.nn.init.normal_(layer.weight, std=0.02)  # type: ignore[arg-type]

    def forward(self, model: GraphSliceformer, batch: Any) -> dict[str, Tensor]:
        """Predict the numbers of a batch of :func:`mask`: a tensor for each of `LOSSES`."""
        kept: dict[str, Tensor] = {}
        hooks = [
            part.register_forward_hook(lambda *call, name=name: kept.update({name: call[-1]}))
            for name, part in (("atoms", model.final_norm), ("graphs", model.readout))
        ]
        try:
            found = {"descriptors": model.score(batch)}
        finally:
            for hook in hooks:
                hook.remove()
        atoms, (one, other) = kept["atoms"], batch.edge_index[:, batch.masked_bonds]
        rows = {"fragments": kept["graphs"], "morgan": kept["graphs"], "rings": atoms}
        rows |= {"atoms": atoms[batch.masked_atoms], "bonds": atoms[one] + atoms[other]}
        rows |= {"charges": atoms}
        return found | {name: getattr(self, name)(row) for name, row in rows.items()}

    def losses(self, found: dict[str, Tensor], true: dict[str, Tensor]) -> dict[str, Tensor]:
        """Return the sum of each loss over the numbers that are not NaN (-1), and their count."""
        lost = {}
        for name in LOSSES:
            if name in self.sizes:
                parts = zip(found[name].split(self.sizes[name], -1), true[name].T, strict=True)
                each = [
                    functional.cross_entropy(*one, ignore_index=-1, reduction="sum")
                    for one in parts
                ]
                lost[name] = torch.stack([torch.stack(each).sum(), (true[name][:, 0] >= 0).sum()])
                continue
            known = ~true[name].isnan()
            values = torch.where(known, true[name], 0)
            loss = deviance if name in ("fragments", "morgan") else _squared
            each_loss = torch.where(known, loss(found[name], values), 0)
            lost[name] = torch.stack([each_loss.sum(), known.sum()])
        return lost

    @torch.no_grad()
    def set_constants(self, true: dict[str, Tensor]) -> dict[str, float]:
        """Set the bias of each head to the best constant for a sample; return these losses.

        Descriptors and charges are standardised: theirs is 0.
        """
        constant = {name: torch.zeros_like(true[name]) for name in ("descriptors", "charges")}
        self.charges.bias.zero_()
        for name in ("fragments", "morgan", *self.sizes):
            bias = getattr(self, name).bias
            if name in self.sizes:
                each = zip(true[name].T, self.sizes[name], strict=True)
                counts = [torch.bincount(own[own >= 0], minlength=size) for own, size in each]
                # A class that the sample lacks counts as a tenth of an atom.
                bias.copy_(torch.cat([n.clamp(min=0.1).log() - n.sum().log() for n in counts]))
            else:
                bias.copy_(true[name].nanmean(0).clamp(min=1e-4).log())
            constant[name] = bias.expand(len(true[name]), -1)
        lost = self.losses(constant, true)
        return {name: max(float(pair[0] / pair[1]), 1e-6) for name, pair in lost.items()}


def _squared(found: Tensor, true: Tensor) -> Tensor:
    return (found - true).square()


def deviance(log_rate: Tensor, count: Tensor) -> Tensor:
    """Half the deviance of a Poisson count: ``rate - count + count * log(count / rate)``."""
    log_rate = log_rate.clamp(max=_LARGEST_LOG)
    return log_rate.exp() - count + torch.xlogy(count, count) - count * log_rate


def mask(batch: Any, sizes: dict[str, tuple[int, ...]], seed: int) -> Any:
    """Mask some atoms of some molecules of a batch, and the bonds of these atoms.

    A masked feature has OGB's last category, "misc", or 0 if there are two categories only. The
    batch gets the masks `masked_atoms` ``[T]`` and `masked_bonds` ``[E]``, the features that were
    there, `true_atoms` and `true_bonds`, and `whole` ``[B]``, the molecules without a mask.
    """
    random = torch.Generator().manual_seed(seed)
    chosen = torch.rand(batch.num_graphs, generator=random) < MASKED_MOLECULES
    atoms = (torch.rand(len(batch.x), generator=random) < MASKED_ATOMS) & chosen[batch.batch]
    batch.masked_atoms, batch.masked_bonds = atoms, atoms[batch.edge_index].any(0)
    batch.whole = torch.ones_like(chosen).index_fill(0, batch.batch[atoms], False)
    for name, key in (("atoms", "x"), ("bonds", "edge_attr")):
        masked, features = batch[f"masked_{name}"], batch[key]
        hidden = [size - 1 if size > 2 else 0 for size in sizes[name]]
        batch[f"true_{name}"], batch[key] = features[masked].long(), features.clone()
        batch[key][masked] = torch.tensor(hidden, dtype=features.dtype)
    return batch


class _Run:
    """The updates of a pre-training, from its last checkpoint on."""

    def __init__(
        self,
        config: TrainConfig,
        store: MoleculeStore,
        numbers: ComputedNumbers,
        *,
        splits: dict[str, np.ndarray],
        out: Path,
        device: str,
        progress: bool,
    ) -> None:
        self.config, self.store, self.numbers, self.splits = config, store, numbers, splits
        self.out, self.device, self.progress = out, torch.device(device), progress
        self.ptr = np.concatenate([[0], np.cumsum(store.num_atoms)])
        sample = np.random.default_rng(config.seed).permutation(splits["train"])[:_SAMPLE]
        self.scores = NormalScores(numbers.molecules["descriptors"][np.sort(sample)])
        few = sample[:_FEW]
        charges = numbers.atoms["charge"][self._atoms_of(few)].astype(np.float64)
        self.charge = np.nanmean(charges), np.nanstd(charges) or 1.0
        torch.manual_seed(config.seed)
        rates = {name: getattr(config, name) for name in ("dropout", "attention_dropout")}
        fields = {name: rate for name, rate in rates.items() if rate is not None} | config.model
        names = self.scores.names
        fields |= {"num_targets": len(names), "target_names": names, "task": "regression"}
        self.model = GraphSliceformer(preset(config.preset or DEFAULT, **fields))
        self.heads = Heads(self.model)
        batch = next(iter(self._loader(few, len(few), shuffle=False)))
        batch.true_atoms, batch.true_bonds = batch.x.long(), batch.edge_attr.long()
        batch.whole = torch.ones(len(few), dtype=torch.bool)
        self.constants = self.heads.set_constants(self._true(batch))
        parts = {"model": self.model, "heads": self.heads}
        self.parts = torch.nn.ModuleDict(parts).to(self.device)
        rates = {"lr": config.lr or 0.0, "weight_decay": config.weight_decay or 0.0}
        self.optimizer = make_optimizer(self.parts, config.optimizer or "adamw", **rates)
        self.step, self.seconds, self.rows = 0, 0.0, list[dict[str, Any]]()
        self._signal = 0

    def _atoms_of(self, positions: np.ndarray) -> np.ndarray:
        return np.concatenate([np.arange(*self.ptr[i : i + 2]) for i in positions])

    def _loader(self, positions: np.ndarray, size: int, **options: Any) -> Any:
        options["encode"] = encoding_of(self.model.config)
        return molecule_loader(self.store[positions], size, **options)

    def _true(self, batch: Any) -> dict[str, Tensor]:
        """Return the numbers of a batch; a molecule with masked atoms has none as a whole."""
        positions = batch.index.numpy()
        molecules = self.numbers.molecules[positions]
        own = self.numbers.atoms[self._atoms_of(positions)]
        numbers = {"descriptors": self.scores(molecules["descriptors"])}
        for name in ("fragments", "morgan"):
            unknown = molecules[name] == UNKNOWN
            numbers[name] = np.where(unknown, np.nan, molecules[name]).astype(np.float32)
        for values in numbers.values():
            values[~batch.whole.numpy()] = np.nan
        charges = (own["charge"].astype(np.float32) - self.charge[0]) / self.charge[1]
        numbers["charges"] = charges.astype(np.float32)[:, None]
        numbers["rings"] = np.where(own["ring"] == UNKNOWN, -1, own["ring"].astype(int))[:, None]
        true = {name: torch.from_numpy(values) for name, values in numbers.items()}
        return true | {"atoms": batch.true_atoms, "bonds": batch.true_bonds}

    def _lost(self, batch: Any, seed: int) -> dict[str, Tensor]:
        batch = mask(batch, self.heads.sizes, seed)
        true = {name: values.to(self.device) for name, values in self._true(batch).items()}
        return self.heads.losses(self.heads(self.model, batch.to(self.device)), true)

    def _shares(self, lost: dict[str, Tensor]) -> dict[str, Tensor]:
        """Return the mean of each loss, divided by that of the constant prediction."""
        means = ((name, pair[0] / pair[1].clamp(min=1)) for name, pair in lost.items())
        return {name: mean / self.constants[name] for name, mean in means}

    @torch.no_grad()
    def evaluate(self) -> dict[str, float]:
        """Return the losses on the held-out molecules, and their mean as "all"."""
        self.parts.eval()
        size, sums = max(128, self.config.batch_size or 1), dict[str, Any]()
        for number, batch in enumerate(self._loader(self.splits["held_out"], size, shuffle=False)):
            for name, pair in self._lost(batch, number).items():
                sums[name] = sums.get(name, 0) + pair.double()
        self.parts.train()
        found = {name: float(share) for name, share in self._shares(sums).items()}
        return {"all": sum(found.values()) / len(found), **found}

    def train(self) -> dict[str, Any]:
        """Do all updates that are not done yet; return what the model card has about them."""
        config, lr = self.config, self.config.lr or 0.0
        loader = self._loader(self.splits["train"], config.batch_size or 1, seed=config.seed)
        each = len(loader.sampler)
        total = config.max_steps or (config.epochs or 1) * each
        warmup = math.ceil(0.06 * total) if config.warmup_steps is None else config.warmup_steps
        factor = warmup_and_decay(lr, warmup, total, config.end_lr or 0.0)
        count = sum(p.numel() for p in self.model.parameters())
        if not self._load():
            sizes = ", ".join(f"{name} {len(part):,}" for name, part in self.splits.items())
            self._say(f"molecules  {sizes}\nmodel      {config.preset}: {count:,} parameters")
            self._say(f"run        {self.out}: {total:,} updates of {config.batch_size} molecules")
            self._say("held-out losses; 1 is the best constant prediction:")
            self._note()
        mark = saved = time.monotonic()
        with self._signals():
            while self.step < total:
                loader.sampler.resume(*divmod(self.step, each))
                for batch in loader:
                    self._update(batch, lr * factor(self.step))
                    now = time.monotonic()
                    self.seconds, mark = self.seconds + now - mark, now
                    marks = [EVALUATIONS * step // total for step in (self.step - 1, self.step)]
                    if marks[0] < marks[1]:
                        self._note()
                        mark = time.monotonic()
                    due = marks[0] < marks[1] or now - saved > 60 * config.checkpoint_minutes
                    if due or self._signal:
                        self._save()
                        saved = now
                    if self._signal:
                        raise Stopped(self._signal, self.out)
                    if self.step == total:
                        break
        return {
            "parameters": count,
            "updates": total,
            "train_seconds": round(self.seconds, 1),
            "constants": self.constants,
            "descriptors": list(self.scores.names),
            "start": self.rows[0]["losses"],
            "end": self.rows[-1]["losses"],
        }

    def _update(self, batch: Any, lr: float) -> None:
        # Masks and dropout depend on the number of the update alone, so that a run can go on.
        seed = self.config.seed * 1_000_003 + self.step
        torch.manual_seed(seed)
        loss = torch.stack(list(self._shares(self._lost(batch, seed)).values())).mean()
        if not bool(loss.isfinite()):
            raise ValueError(f"pretrain: the loss is {float(loss)} after {self.step} updates")
        self.optimizer.zero_grad(set_to_none=True)
        loss.backward()
        if self.config.clip:
            torch.nn.utils.clip_grad_norm_(self.parts.parameters(), self.config.clip)
        for group in self.optimizer.param_groups:
            group["lr"] = lr
        self.optimizer.step()
        self.step += 1

    def _say(self, text: str) -> None:
        if self.progress:
            say(text)

    def _note(self) -> None:
        """Evaluate, and write the log."""
        row: dict[str, Any] = {"step": self.step, "seconds": round(self.seconds, 1)}
        row["losses"] = self.evaluate()
        self.rows.append(row)
        text = io.StringIO()
        table = csv.writer(text, lineterminator="\n")
        table.writerow(["step", "seconds", *row["losses"]])
        table.writerows([one["step"], one["seconds"], *one["losses"].values()] for one in self.rows)
        write_atomically(self.out / "log.csv", [text.getvalue().encode()])
        losses = "  ".join(f"{name} {value:.3f}" for name, value in row["losses"].items())
        self._say(f"{self.step:>8,}  {self.seconds:7.0f} s  {losses}")

    def _save(self) -> None:
        state = {"step": self.step, "seconds": self.seconds, "rows": self.rows}
        state |= {"parts": self.parts.state_dict(), "optimizer": self.optimizer.state_dict()}
        AtomicCheckpointIO().save_checkpoint(state, self.out / _CHECKPOINT)

    def _load(self) -> bool:
        """Go on from the last checkpoint, if there is one."""
        if not (self.out / _CHECKPOINT).is_file():
            return False
        state = AtomicCheckpointIO().load_checkpoint(self.out / _CHECKPOINT)
        self.parts.load_state_dict(state["parts"])
        self.optimizer.load_state_dict(state["optimizer"])
        self.step, self.seconds, self.rows = (state[name] for name in ("step", "seconds", "rows"))
        self._say(f"{self.out}: {self.step:,} updates were done before")
        return True

    @contextmanager
    def _signals(self) -> Iterator[None]:
        """Let Ctrl-C and SIGTERM wait for the end of an update."""

        def note(number: int, frame: Any) -> None:
            self._signal = number

        before = {number: signal.signal(number, note) for number in (signal.SIGTERM, signal.SIGINT)}
        try:
            yield
        finally:
            for number, handler in before.items():
                signal.signal(number, handler)


def _card(record: dict[str, Any]) -> str:
    """Return the model card, model/README.md."""
    facts = {
        "Molecules": ", ".join(f"{name} {n:,}" for name, n in record["molecules"].items()),
        "Left out": ", ".join(f"{n:,} {name}" for name, n in record["left_out"].items()),
        "Licence of the sources": record["licence"] or "not given",
        "Model": f"{record['preset']} {record['model'] or ''}, {record['parameters']:,} parameters",
        "Training": f"{record['updates']:,} updates of {record['batch_size']} molecules in "
        f"{record['train_seconds']:,} s, learning rate {record['lr']}, seed {record['seed']}",
        "Head": f"the normal scores of {len(record['descriptors'])} descriptors of RDKit",
        "Weights": f"{WEIGHTS_FILE}, SHA-256 {record['weights_sha256']}",
        "Command": f"`{record['command']}`" if record["command"] else "not given",
        "Made": f"{record['date']} with {versions()}",
    }
    sources = ["| file | rows | trained on | SHA-256 |", "|---|---|---|---|"]
    for one in record["sources"]:
        sources.append(
            f"| {one['name']} | {one['rows']:,} | {one['trained']:,} | {one['sha256']} |"
        )
    excluded = ", ".join(one["name"] for one in record["exclude"]) or "none"
    sources += ["", f"Files whose molecules are left out: {excluded}."]
    losses = ["On held-out molecules; 1 is the best constant prediction.", ""]
    losses += ["| loss | what it is | start | end |", "|---|---|---|---|"]
    for name, text in LOSSES.items():
        start, end = (f"{record[when][name]:.3f}" for when in ("start", "end"))
        losses.append(f"| {name} | {text} | {start} | {end} |")
    use = ["slicegraph train --data csv:my.csv --init model"]
    use += ["slicegraph embed model my.csv --out embeddings.parquet"]
    sections = {"Sources": sources, "Losses": losses, "Use": ["```", *use, "```"]}
    return card_text("An encoder of molecules, pre-trained without labels", facts, sections)
