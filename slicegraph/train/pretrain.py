"""Pre-training without labels: an encoder learns to predict what RDKit computes for molecules.

A folder of a pre-training has `data` (the corpus, its store and its numbers), `pretraining.json`
(the settings), `checkpoint.pt`, `log.csv` and, at the end, `model`, which `slicegraph train --init`
starts from and `slicegraph embed` reads.
"""

import csv
import io
import json
import math
import signal
import threading
import time
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

import numpy as np
import torch
from torch import Tensor
from torch.nn import functional

from slicegraph.data import descriptors as rdkit_numbers
from slicegraph.data.batch import molecule_loader
from slicegraph.data.descriptors import ComputedNumbers, NormalScores, compute_descriptors
from slicegraph.data.molecules import molecule_keys
from slicegraph.data.prepare import prepare
from slicegraph.data.store import META, MoleculeStore, read_meta
from slicegraph.data.table import cut, is_text, open_table
from slicegraph.files import sha256_of, write_atomically
from slicegraph.models import GraphSliceformer, preset
from slicegraph.models.base import CARD_MARK, versions
from slicegraph.nn.mixer import MIXERS
from slicegraph.ops.paths import MAX_DISTANCE
from slicegraph.train.callbacks import Stopped
from slicegraph.train.config import DEFAULT, TrainConfig
from slicegraph.train.machine import AtomicCheckpointIO, cpu_threads, freed_memory_kept, say
from slicegraph.train.module import parameter_groups, warmup_and_decay
from slicegraph.transforms import StructuralEncoding

MASKED_MOLECULES, MASKED_ATOMS = 0.25, 0.15  # the share of molecules, and of atoms in these
HELD_OUT, MOST_HELD_OUT = 0.05, 5_000  # the share, and the largest number, that is never trained on
EVALUATIONS = 20  # of the held-out molecules in a run
SETTINGS = (  # of `TrainConfig`
    *("preset", "model", "dropout", "attention_dropout", "batch_size", "epochs", "max_steps", "lr"),
    *("warmup_steps", "end_lr", "weight_decay", "clip", "seed", "threads", "checkpoint_minutes"),
)
LOSSES = {
    "descriptors": "squared error of the normal scores of RDKit's 2D descriptors",
    "fragments": "Poisson deviance of the counts of RDKit's functional groups",
    "morgan": f"Poisson deviance of the counts of {rdkit_numbers.MORGAN_BITS} Morgan bits",
    "atoms": "cross entropy of OGB's features of masked atoms",
    "bonds": "cross entropy of OGB's features of the bonds of masked atoms",
    "rings": "cross entropy of the size of each atom's smallest ring",
    "charges": "squared error of each atom's Gasteiger charge",
}
_SAMPLE, _FEW = 50_000, 2_000  # training molecules of the normal scores, of the constants
_LARGEST_LOG = 5.0  # of a predicted count
_JOB, _CHECKPOINT, _LOG = "pretraining.json", "checkpoint.pt", "log.csv"
_Lost = dict[str, Tensor]


@dataclass(frozen=True)
class PretrainResult:
    """A finished pre-training.

    Args:
        folder: its folder.
        model: the folder of the model.
        record: everything in `model/config.json` about it, with the losses at start and end.
    """

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
    workers: int | None = None,
    device: str = "cpu",
    command: str = "",
    progress: bool = True,
) -> PretrainResult:
    r"""Pre-train an encoder on the numbers that RDKit computes for molecules.

    The loss is the mean of the `LOSSES`, each divided by the loss of the best constant prediction:
    all of them are about 1 at the beginning, and 0 would be perfect. Some molecules have masked
    atoms; the losses of whole molecules leave these molecules out. After an interruption the same
    call goes on from there and, on one CPU, ends with the same weights.

    Args:
        sources: files of molecules, as :func:`slicegraph.data.table.open_table` takes them, or
            stores. A molecule that occurs several times is used once.
        out: the folder of the pre-training; new, or that of an interrupted call.
        config: the settings, of which `SETTINGS` are read.
        data: the folder of the corpus and its numbers, which several pre-trainings may share
            (default: `data` in `out`).
        smiles: the column of the SMILES in the files; guessed by default.
        exclude: files whose molecules are left out, such as those of a test.
        limit: the largest number of training molecules; those held out do not depend on it.
        licence: the licence of the sources, for the model card.
        workers: how many processes read molecules and compute numbers.
        device: where the model is trained.
        command: the command that repeats it, for the model card.
        progress: whether to print the losses.

    Example:
        >>> result = pretrain(["molecules.csv"], "runs/pretrained", TrainConfig(epochs=5))
        >>> slicegraph.train(TrainConfig(data="csv:my.csv", init=str(result.model)))
    """
    config = config or TrainConfig()
    if config.epochs is None and config.max_steps is None:
        config = TrainConfig.from_dict(asdict(config) | {"epochs": 5})
    config, out = config.resolved(), Path(out)
    chosen = {"limit": limit, "licence": licence, "smiles": smiles}
    job = {"sources": [_identity(Path(path)) for path in sources]}
    job |= {"exclude": [_identity(Path(path)) for path in exclude]}
    job |= chosen | {name: getattr(config, name) for name in SETTINGS}
    _begin(out, json.loads(json.dumps(job)))
    data = out / "data" if data is None else Path(data)
    store, counts = _read_corpus(sources, job["sources"], data, smiles, workers, progress)
    numbers = compute_descriptors(store, data / "numbers", workers=workers, progress=progress)
    splits, left_out = _split(numbers, _keys_of(exclude, smiles), limit)
    job |= {"molecules": {name: len(part) for name, part in splits.items()}, "left_out": left_out}
    for source, first, last in zip(job["sources"], [0, *counts], counts, strict=False):
        rows = store.rows[splits["train"]]
        source |= {"rows": last - first, "trained_on": int(((first <= rows) & (rows < last)).sum())}
    with cpu_threads(config.threads), freed_memory_kept():
        run = _Run(config, store, numbers, splits, out, device, progress)
        job |= run.train() | {"command": command}
    run.model.save(out / "model")
    path = out / "model" / "config.json"
    content = json.loads(path.read_text("utf-8")) | {"training": job}
    write_atomically(path, [(json.dumps(content, indent=2) + "\n").encode()])
    write_atomically(out / "model" / "README.md", [_card(job).encode()])
    return PretrainResult(out, out / "model", job)


def _identity(path: Path) -> dict[str, Any]:
    if (path / META).is_file():
        return {"name": path.name, "sha256": read_meta(path)["files"]["smiles.npy"]["sha256"]}
    if not path.is_file():
        raise FileNotFoundError(f"pretrain: there is no file or store {str(path)!r}")
    return {"name": path.name, "sha256": sha256_of(path)}


def _begin(out: Path, job: dict[str, Any]) -> None:
    """Make the folder, or raise if it is that of another pre-training."""
    path = out / _JOB
    if not path.is_file():
        if out.is_dir() and any(out.iterdir()):
            raise FileExistsError(f"pretrain: {out} is not empty; choose another --out")
        out.mkdir(parents=True, exist_ok=True)
        write_atomically(path, [json.dumps(job, indent=2).encode()])
    before = json.loads(path.read_text("utf-8"))
    for name in (name for name in {**before, **job} if before.get(name) != job.get(name)):
        values = f"{name} = {before.get(name)!r}, not {job.get(name)!r}"
        raise ValueError(f"pretrain: {out} was begun with {values}; choose another --out")


def _texts(source: str | Path, smiles: str | None) -> Iterator[str]:
    """Yield the SMILES of a file or store, "" for a row that cannot be read."""
    if (Path(source) / META).is_file():
        store = MoleculeStore(source)
        yield from map(store.smiles, range(len(store)))
        return
    for chunk in cut(open_table(source, smiles, labels=()), 4096):
        yield from ("" if row.problem or not is_text(row.text) else row.text for row in chunk.rows)


def _read_corpus(
    sources: Sequence[str | Path],
    identities: list[dict[str, Any]],
    folder: Path,
    smiles: str | None,
    workers: int | None,
    progress: bool,
) -> tuple[MoleculeStore, list[int]]:
    """Join all sources in one table and prepare it; return where each source ends in it."""
    table, facts = folder / "corpus.csv", folder / "corpus.json"
    kept = [{name: one[name] for name in ("name", "sha256")} for one in identities]
    if not facts.is_file():
        folder.mkdir(parents=True, exist_ok=True)
        ends: list[int] = []
        write_atomically(table, _corpus(sources, smiles, ends))
        content = {"sources": kept, "ends": ends}
        write_atomically(facts, [json.dumps(content).encode()])
    found = json.loads(facts.read_text("utf-8"))
    if found["sources"] != kept:
        raise ValueError(f"pretrain: {folder} has other sources; choose another --data")
    options: dict[str, Any] = {"workers": workers, "progress": progress}
    prepare(table, folder / "store", smiles="smiles", labels=[], **options)
    return MoleculeStore(folder / "store"), found["ends"]


def _corpus(
    sources: Sequence[str | Path], smiles: str | None, ends: list[int]
) -> Iterator[bytes]:
    yield b"smiles\n"
    count = 0
    for source in sources:
        text = io.StringIO()
        rows = csv.writer(text, lineterminator="\n", quoting=csv.QUOTE_ALL)
        for smile in _texts(source, smiles):
            rows.writerow([smile])
            count += 1
            if text.tell() > 1 << 20:
                yield text.getvalue().encode()
                text.seek(0)
                text.truncate()
        yield text.getvalue().encode()
        ends.append(count)


def _keys_of(files: Sequence[str | Path], smiles: str | None) -> np.ndarray:
    texts = [text for file in files for text in _texts(file, smiles) if text]
    return np.unique(molecule_keys(texts))


def _split(
    numbers: ComputedNumbers, excluded: np.ndarray, limit: int | None
) -> tuple[dict[str, np.ndarray], dict[str, int]]:
    """Return the positions to train on and to hold out; and how many molecules are left out.

    Molecules are in the order of their keys, which are hashes, so a molecule is on one side only
    and the side does not depend on the order of the sources.
    """
    keys = np.array(numbers.molecules["key"])
    order = np.argsort(keys, kind="stable")
    order = order[keys[order] > 0]
    unique = order[np.concatenate([[True], np.diff(keys[order]) > 0])] if len(order) else order
    used = unique[~np.isin(keys[unique], excluded)]
    held = min(MOST_HELD_OUT, math.ceil(HELD_OUT * len(used)))
    splits = {"train": np.sort(used[held:][:limit]), "held_out": np.sort(used[:held])}
    if not all(map(len, splits.values())):
        raise ValueError(f"pretrain: {len(used)} molecules are left, expected at least 2")
    left_out = {
        "without numbers": len(keys) - len(order),
        "repeated": len(order) - len(unique),
        "excluded": len(unique) - len(used),
        "beyond the limit": len(used) - sum(map(len, splits.values())),
    }
    return splits, left_out


class Heads(torch.nn.Module):
    """Linear heads of the pre-training; that of the descriptors is the head of the model.

    Args:
        model: the encoder; its readout must not be a token, which leaves out the atoms.
    """

    def __init__(self, model: GraphSliceformer) -> None:
        super().__init__()
        if model.config.token:
            raise ValueError(
                "pretrain: readout = 'token' has no vectors of the atoms; choose a preset of ours, "
                "or --model.readout quantiles"
            )
        self.atom_sizes = model.config.node_vocabulary or ()
        self.bond_sizes = model.config.edge_vocabulary or ()
        graph, atom = model.readout.out_channels, model.config.channels
        self.fragments = torch.nn.Linear(graph, len(rdkit_numbers.FRAGMENTS))
        self.morgan = torch.nn.Linear(graph, rdkit_numbers.MORGAN_BITS)
        self.atoms = torch.nn.Linear(atom, sum(self.atom_sizes))
        self.bonds = torch.nn.Linear(atom, sum(self.bond_sizes))
        self.rings = torch.nn.Linear(atom, rdkit_numbers.MOST_RING + 1)
        self.charges = torch.nn.Linear(atom, 1)
        for layer in self.children():
            torch.nn.init.normal_(layer.weight, std=0.02)  # type: ignore[arg-type]

    def forward(self, model: GraphSliceformer, batch: Any) -> dict[str, Tensor]:
        """Predict the numbers of a batch of `mask`; only the masked bonds, in both directions."""
        kept: dict[str, Tensor] = {}
        parts = (("atoms", model.final_norm), ("graphs", model.readout))
        hooks = [
            part.register_forward_hook(lambda *call, name=name: kept.update({name: call[-1]}))
            for name, part in parts
        ]
        try:
            found = {"descriptors": model.score(batch)}
        finally:
            for hook in hooks:
                hook.remove()
        graphs, atoms = kept["graphs"], kept["atoms"]
        one, other = batch.edge_index[:, batch.masked_bonds]
        found |= {"fragments": self.fragments(graphs), "morgan": self.morgan(graphs)}
        found |= {"atoms": self.atoms(atoms[batch.masked_atoms])}
        found |= {"bonds": self.bonds(atoms[one] + atoms[other])}
        return found | {"rings": self.rings(atoms), "charges": self.charges(atoms)[:, 0]}

    def losses(self, found: dict[str, Tensor], true: dict[str, Tensor]) -> _Lost:
        """Return the mean of each loss over the numbers that are known, ``[2]``: sum and count."""
        lost = {}
        for name in ("descriptors", "charges"):
            lost[name] = _known(functional.mse_loss, found[name], true[name])
        for name in ("fragments", "morgan"):
            lost[name] = _known(_deviance, found[name], true[name])
        for name, sizes in (
            ("atoms", self.atom_sizes),
            ("bonds", self.bond_sizes),
            ("rings", (rdkit_numbers.MOST_RING + 1,)),
        ):
            parts = zip(found[name].split(sizes, -1), true[name].unbind(-1), strict=True)
            each = [_cross_entropy(logits, classes) for logits, classes in parts]
            lost[name] = torch.stack([sum(pair[0] for pair in each), each[0][1]])  # type: ignore
        return lost

    @torch.no_grad()
    def set_constants(self, true: dict[str, Tensor]) -> dict[str, float]:
        """Let every head predict the best constant of a sample; return the losses of these."""
        for name in ("fragments", "morgan"):
            rate = true[name].nanmean(0).clamp(min=1e-4)
            getattr(self, name).bias.copy_(rate.log())
        self.charges.bias.zero_()
        for name, sizes in (
            ("atoms", self.atom_sizes),
            ("bonds", self.bond_sizes),
            ("rings", (rdkit_numbers.MOST_RING + 1,)),
        ):
            counts = [
                functional.one_hot(classes[classes >= 0], size).sum(0)
                for classes, size in zip(true[name].unbind(-1), sizes, strict=True)
            ]
            # A class that the sample does not have counts as a tenth of a molecule.
            logs = [(one.clamp(min=0.1) / one.clamp(min=0.1).sum()).log() for one in counts]
            getattr(self, name).bias.copy_(torch.cat(logs))
        constant = {
            name: layer.bias.expand(len(true[name]), -1) for name, layer in self.named_children()
        }
        constant["charges"] = constant["charges"][:, 0]
        constant["descriptors"] = torch.zeros_like(true["descriptors"])
        return {name: max(float(v[0] / v[1]), 1e-6) for name, v in self.losses(constant, true).items()}


def _known(loss: Any, found: Tensor, true: Tensor) -> Tensor:
    known = ~true.isnan()
    each = loss(found, torch.where(known, true, 0), reduction="none")
    return torch.stack([torch.where(known, each, 0).sum(), known.sum()])


def _deviance(log_rate: Tensor, count: Tensor, reduction: str) -> Tensor:
    """Half the Poisson deviance, ``rate - count + count log(count / rate)``: 0 is perfect."""
    log_rate = log_rate.clamp(max=_LARGEST_LOG)
    return log_rate.exp() - count + torch.xlogy(count, count) - count * log_rate


def _cross_entropy(logits: Tensor, classes: Tensor) -> tuple[Tensor, Tensor]:
    options: Any = {"ignore_index": -1, "reduction": "sum"}
    return functional.cross_entropy(logits, classes, **options), (classes >= 0).sum()


def mask(batch: Any, atom_sizes: Sequence[int], bond_sizes: Sequence[int], seed: int) -> Any:
    """Mask some atoms of some molecules, and the bonds of these atoms.

    A masked feature is OGB's last category, "misc", or 0 if it has two categories only. The batch
    also gets `masked_atoms` ``[T]`` and `masked_bonds` ``[E]``, and the features of both.
    """
    random = torch.Generator().manual_seed(seed)
    chosen = torch.rand(batch.num_graphs, generator=random) < MASKED_MOLECULES
    atoms = (torch.rand(len(batch.x), generator=random) < MASKED_ATOMS) & chosen[batch.batch]
    bonds = atoms[batch.edge_index].any(0)
    batch.whole = ~torch.zeros_like(chosen).index_fill(0, batch.batch[atoms], True)
    for name, chosen, sizes in (("x", atoms, atom_sizes), ("edge_attr", bonds, bond_sizes)):
        features = batch[name]
        hidden = [size - 1 if size > 2 else 0 for size in sizes]
        batch[f"true_{name}"] = features[chosen].long()
        batch[name] = features.clone()
        batch[name][chosen] = torch.tensor(hidden, dtype=features.dtype)
    batch.masked_atoms, batch.masked_bonds = atoms, bonds
    return batch


class _Run:
    """The updates of a pre-training, from its last checkpoint on."""

    def __init__(
        self,
        config: TrainConfig,
        store: MoleculeStore,
        numbers: ComputedNumbers,
        splits: dict[str, np.ndarray],
        out: Path,
        device: str,
        progress: bool,
    ) -> None:
        self.config, self.store, self.splits, self.out = config, store, splits, out
        self.numbers, self.device, self.progress = numbers, torch.device(device), progress
        self.ptr = np.concatenate([[0], np.cumsum(store.num_atoms)])
        random = np.random.default_rng(config.seed)
        sample = np.sort(random.permutation(splits["train"])[:_SAMPLE])
        self.scores = NormalScores(numbers.molecules["descriptors"][sample])
        few = random.permutation(sample)[:_FEW]
        charges = numbers.atoms["charge"][self._atoms_of(few)].astype(np.float32)
        self.charge = float(np.nanmean(charges)), float(np.nanstd(charges)) or 1.0
        torch.manual_seed(config.seed)
        names = self.scores.names
        given = {name: getattr(config, name) for name in ("dropout", "attention_dropout")}
        fields = {name: rate for name, rate in given.items() if rate is not None} | config.model
        fields |= {"num_targets": len(names), "target_names": names, "task": "regression"}
        self.model = GraphSliceformer(preset(config.preset or DEFAULT, **fields)).to(self.device)
        self.heads = Heads(self.model)
        everything = next(iter(self._loader(few, len(few), shuffle=False)))
        everything.true_x, everything.true_edge_attr = everything.x.long(), everything.edge_attr.long()
        everything.whole = torch.ones(len(few), dtype=torch.bool)
        self.constants = self.heads.set_constants(self._true(everything))
        self.heads.to(self.device)
        self.parts = torch.nn.ModuleDict({"model": self.model, "heads": self.heads})
        decay: Any = config.weight_decay or 0.0
        self.optimizer = torch.optim.AdamW(parameter_groups(self.parts, decay), lr=config.lr or 0.0)
        self.step, self.seconds, self.rows = 0, 0.0, list[dict[str, Any]]()
        self._signal = 0

    def _atoms_of(self, positions: np.ndarray) -> np.ndarray:
        return np.concatenate([np.arange(*self.ptr[i : i + 2]) for i in positions])

    def _loader(self, positions: np.ndarray, size: int, **options: Any) -> Any:
        c = self.model.config
        distance, hops = min(c.max_distance, MAX_DISTANCE), max(1, c.max_hops)
        encode = StructuralEncoding(distance, hops) if MIXERS[c.mixer].needs_pairs else None
        return molecule_loader(self.store[positions], size, encode=encode, **options)

    def _true(self, batch: Any) -> dict[str, Tensor]:
        """Return the numbers of a batch; those of molecules with masked atoms are NaN."""
        positions = batch.index.numpy()
        molecules, atoms = self.numbers.molecules[positions], self._atoms_of(positions)
        own = self.numbers.atoms[atoms]
        numbers = {"descriptors": self.scores(molecules["descriptors"])}
        for name in ("fragments", "morgan"):
            counts = molecules[name].astype(np.float32)
            counts[molecules[name] == rdkit_numbers.UNKNOWN] = np.nan
            numbers[name] = counts
        true = {name: torch.from_numpy(values) for name, values in numbers.items()}
        true = {name: torch.where(batch.whole[:, None], v, torch.nan) for name, v in true.items()}
        rings = own["ring"].astype(np.int64)
        rings[rings == rdkit_numbers.UNKNOWN] = -1
        charges = (own["charge"].astype(np.float32) - self.charge[0]) / self.charge[1]
        true |= {"rings": torch.from_numpy(rings)[:, None], "charges": torch.from_numpy(charges)}
        true |= {"atoms": batch.true_x, "bonds": batch.true_edge_attr}
        return {name: values.to(self.device) for name, values in true.items()}

    def _lost(self, batch: Any, seed: int) -> _Lost:
        batch = mask(batch, self.heads.atom_sizes, self.heads.bond_sizes, seed)
        true = self._true(batch)
        return self.heads.losses(self.heads(self.model, batch.to(self.device)), true)

    def _total(self, lost: _Lost) -> Tensor:
        shares = [v[0] / v[1].clamp(min=1) / self.constants[name] for name, v in lost.items()]
        return torch.stack(shares).mean()

    @torch.no_grad()
    def evaluate(self) -> dict[str, float]:
        """Return each loss on the held-out molecules, divided by that of the constant."""
        self.parts.eval()
        size = max(128, self.config.batch_size or 1)
        sums: dict[str, Tensor] = {}
        for number, batch in enumerate(self._loader(self.splits["held_out"], size, shuffle=False)):
            for name, pair in self._lost(batch, number).items():
                sums[name] = sums.get(name, 0) + pair.double().cpu()
        self.parts.train()
        found = {n: float(v[0] / v[1].clamp(min=1)) / self.constants[n] for n, v in sums.items()}
        return {"all": sum(found.values()) / len(found), **found}

    def train(self) -> dict[str, Any]:
        """Do all updates that are not done yet; return what the model card has about them."""
        config = self.config
        loader = self._loader(self.splits["train"], config.batch_size or 1, seed=config.seed)
        each = len(loader.sampler)
        total = config.max_steps or (config.epochs or 1) * each
        warmup = math.ceil(0.06 * total) if config.warmup_steps is None else config.warmup_steps
        factor = warmup_and_decay(config.lr or 0.0, warmup, total, config.end_lr or 0.0)
        self._load()
        if not self.step and not self.rows:
            self._describe(total)
            self._note()
        mark = saved = time.monotonic()
        with self._signals():
            while self.step < total:
                loader.sampler.resume(*divmod(self.step, each))
                for batch in loader:
                    self._update(batch, factor(self.step))
                    now = time.monotonic()
                    self.seconds, mark = self.seconds + now - mark, now
                    done = EVALUATIONS * self.step // total
                    due = done > EVALUATIONS * (self.step - 1) // total
                    if due:
                        self._note()
                        mark = time.monotonic()
                    if due or self._signal or now - saved > 60 * config.checkpoint_minutes:
                        self._save()
                        saved = now
                    if self._signal:
                        raise Stopped(self._signal, self.out)
                    if self.step >= total:
                        break
        return {
            "preset": config.preset,
            "parameters": sum(p.numel() for p in self.model.parameters()),
            "updates": total,
            "train_seconds": round(self.seconds, 1),
            "targets": {"descriptors": list(self.scores.names)},
            "constants": self.constants,
            "start": self.rows[0]["losses"],
            "end": self.rows[-1]["losses"],
            "made": time.strftime("%Y-%m-%d"),
        }

    def _update(self, batch: Any, factor: float) -> None:
        # The masks and dropout of an update depend on its number alone, so that a run can go on.
        seed = self.config.seed * 1_000_003 + self.step
        torch.manual_seed(seed)
        loss = self._total(self._lost(batch, seed))
        if not bool(loss.isfinite()):
            raise ValueError(f"pretrain: the loss is {float(loss)} after {self.step} updates")
        self.optimizer.zero_grad(set_to_none=True)
        loss.backward()
        if self.config.clip:
            torch.nn.utils.clip_grad_norm_(self.parts.parameters(), self.config.clip)
        for group in self.optimizer.param_groups:
            group["lr"] = factor * (self.config.lr or 0.0)
        self.optimizer.step()
        self.step += 1

    def _describe(self, total: int) -> None:
        if self.progress:
            sizes = ", ".join(f"{name} {len(part):,}" for name, part in self.splits.items())
            count = sum(p.numel() for p in self.model.parameters())
            say(f"molecules  {sizes}\nmodel      {self.config.preset}: {count:,} parameters")
            say(f"run        {self.out}: {total:,} updates of {self.config.batch_size} molecules")
            say("held-out losses, divided by that of the best constant prediction:")

    def _note(self) -> None:
        """Evaluate, and write a row of the log."""
        row = {"step": self.step, "seconds": round(self.seconds, 1), "losses": self.evaluate()}
        self.rows.append(row)
        text = io.StringIO()
        table = csv.writer(text, lineterminator="\n")
        table.writerow(["step", "seconds", *row["losses"]])
        table.writerows([one["step"], one["seconds"], *one["losses"].values()] for one in self.rows)
        write_atomically(self.out / _LOG, [text.getvalue().encode()])
        if self.progress:
            losses = "  ".join(f"{name} {value:.3f}" for name, value in row["losses"].items())
            say(f"{self.step:>8,}  {self.seconds:7.0f} s  {losses}")

    def _save(self) -> None:
        state = {"step": self.step, "seconds": self.seconds, "rows": self.rows}
        state |= {"parts": self.parts.state_dict(), "optimizer": self.optimizer.state_dict()}
        AtomicCheckpointIO().save_checkpoint(state, self.out / _CHECKPOINT)

    def _load(self) -> None:
        if (self.out / _CHECKPOINT).is_file():
            state = AtomicCheckpointIO().load_checkpoint(self.out / _CHECKPOINT)
            self.parts.load_state_dict(state["parts"])
            self.optimizer.load_state_dict(state["optimizer"])
            self.step, self.seconds, self.rows = (state[n] for n in ("step", "seconds", "rows"))
            if self.progress:
                say(f"{self.out}: {self.step:,} updates were done before")

    @contextmanager
    def _signals(self) -> Iterator[None]:
        """Let Ctrl-C and SIGTERM wait for the end of an update."""
        if threading.current_thread() is not threading.main_thread():
            yield
            return

        def note(number: int, frame: Any) -> None:
            self._signal = number

        before = {n: signal.signal(n, note) for n in (signal.SIGTERM, signal.SIGINT)}
        try:
            yield
        finally:
            for number, handler in before.items():
                signal.signal(number, handler)


def _card(job: dict[str, Any]) -> str:
    """Return the model card, model/README.md."""
    facts = {
        "Molecules": ", ".join(f"{name} {n:,}" for name, n in job["molecules"].items()),
        "Left out": ", ".join(f"{n:,} {name}" for name, n in job["left_out"].items()),
        "Licence of the sources": job["licence"] or "not given",
        "Model": f"{job['preset']}, {job['parameters']:,} parameters; settings {job['model']}",
        "Training": f"{job['updates']:,} updates of {job['batch_size']} molecules in "
        f"{job['train_seconds']:,} s, learning rate {job['lr']}, seed {job['seed']}",
        "Head": f"the normal scores of {len(job['targets']['descriptors'])} descriptors of RDKit",
        "Command": f"`{job['command']}`" if job["command"] else "",
        "Made": f"{job['made']} with {versions()}, RDKit {rdkit_numbers.rdkit.__version__}",
    }
    lines = ["# A pre-trained encoder of molecules", "", "| | |", "|---|---|"]
    lines += [f"| {name} | {text} |" for name, text in facts.items() if text]
    lines += ["", "## Sources", "", "| file | rows | trained on | SHA-256 |", "|---|---|---|---|"]
    lines += [
        f"| {one['name']} | {one['rows']:,} | {one['trained_on']:,} | {one['sha256']} |"
        for one in job["sources"]
    ]
    excluded = ", ".join(one["name"] for one in job["exclude"]) or "no file"
    lines += ["", f"The molecules of these files are left out: {excluded}."]
    lines += ["", "## Losses on held-out molecules", ""]
    lines += ["Each is divided by the loss of the best constant prediction.", ""]
    lines += ["| loss | what it is | start | end |", "|---|---|---|---|"]
    for name, text in LOSSES.items():
        lines.append(f"| {name} | {text} | {job['start'][name]:.3f} | {job['end'][name]:.3f} |")
    lines += ["", "## Use", "", "```", "slicegraph train --data csv:my.csv --init model"]
    lines += ["slicegraph embed model my.csv --out embeddings.parquet", "```", "", CARD_MARK]
    return "\n".join(lines) + "\n"
