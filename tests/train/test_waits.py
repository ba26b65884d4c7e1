"""A training step on a GPU: how often the host waits for the device, and for other ranks."""

import types

import pytest
import torch
from lightning.pytorch.loggers import CSVLogger
from lightning.pytorch.loops.training_epoch_loop import _TrainingEpochLoop
from support.tiny_run import MODEL, tiny_run
from support.waits import waits_on_gpu

from slicegraph.data.batch import FlatBatch, _BatchesOfStore
from slicegraph.train import TrainConfig, machine
from slicegraph.train.callbacks import RunCheckpoint
from slicegraph.train.machine import fast_products
from slicegraph.train.module import BadLoss, LabelMean, StepLosses, TrainingModule


@pytest.fixture
def steps(tmp_path, monkeypatch) -> list[list[str]]:
    """What each training step waits for: from the transfer of its batch to logging it."""
    found: list[list[str]] = []
    current: list[list[str]] = [[]]
    advance = _TrainingEpochLoop.advance

    def counted(self, data_fetcher):
        self.trainer.log_every_n_steps = 1
        with waits_on_gpu() as current[0]:
            advance(self, data_fetcher)
        found.append(current[0])

    def leave_out(owner, name, kind=""):
        method = getattr(owner, name)

        def run(*arguments, **options):
            before = len(current[0])
            result = method(*arguments, **options)
            current[0][before:] = [w for w in current[0][before:] if not w.startswith(kind)]
            return result

        monkeypatch.setattr(owner, name, run)

    monkeypatch.setattr(_TrainingEpochLoop, "advance", counted)
    leave_out(_BatchesOfStore, "__getitem__")  # on the host, in a process of the loader as a rule
    # To the device, which is the CPU here.
    leave_out(FlatBatch, "to", "Tensor.to")
    leave_out(torch.nn.utils, "clip_grad_norm_", "Tensor.to")
    logger = CSVLogger(tmp_path, name="log", version="")
    monkeypatch.setattr("slicegraph.train.callbacks.make_loggers", lambda *_: [logger])
    return found


@pytest.mark.parametrize(
    "settings",
    [
        {"model": MODEL | {"mixer": "sort_attn"}},
        {"accumulate": 2, "ema": 0.9, "precision": "bf16-mixed"},
    ],
    ids=["plain", "parts, average and bf16"],
)
def test_a_step_reads_the_loss_of_the_step_before_and_nothing_else(tmp_path, steps, settings):
    tiny_run(tmp_path, epochs=2, **settings)
    epoch = 4 * settings.get("accumulate", 1)
    assert len(steps) == 2 * epoch
    assert [len(waits) for waits in steps] == 2 * [0, *[1] * (epoch - 1)], steps
    assert {wait.split(" at ")[0] for waits in steps for wait in waits} == {"Tensor.tolist"}
    assert "train_loss" in (tmp_path / "log" / "metrics.csv").read_text()


def test_a_step_is_read_when_the_next_one_is_added():
    losses, index = StepLosses(), torch.tensor([4, 2])
    losses.add(torch.tensor([6.0, 3.0, 6.0]), index, step=0)
    assert losses.take() == (0.0, 0.0)
    losses.add(torch.tensor([1.0, 1.0, 1.0]), index, step=1)
    assert (losses.step, losses.mean, losses.take()) == (0, 2.0, (6.0, 3.0))
    losses.read()
    assert (losses.step, losses.take()) == (1, (1.0, 1.0))
    losses.add(torch.tensor([torch.nan, 2.0, 0.5]), index, step=2)  # of another rank
    with pytest.raises(BadLoss, match=r"the loss is 0\.5 after 2 updates") as error:
        losses.add(torch.tensor([1.0, 1.0, 1.0]), index, step=3)
    assert error.value.positions == [4, 2]


def looks(monkeypatch, pace: float, world_size: int, updates: int = 400) -> list[int]:
    """The updates after which ranks exchange their signals, if each takes `pace` seconds."""
    found, clock = [], [0.0]

    def exchange(values, device):
        found.append(trainer.global_step)
        return values

    monkeypatch.setattr("slicegraph.train.callbacks.largest_on_ranks", exchange)
    monkeypatch.setattr("slicegraph.train.callbacks.time.monotonic", lambda: clock[0])
    facts = {"world_size": world_size, "accumulate_grad_batches": 1, "is_last_batch": False}
    trainer = types.SimpleNamespace(global_step=0, **facts)
    module = types.SimpleNamespace(device="cpu")
    checkpoint = RunCheckpoint(types.SimpleNamespace(path=None), TrainConfig())
    checkpoint.on_train_epoch_start(trainer, module)
    for number in range(updates):
        clock[0] += pace
        trainer.global_step += 1
        checkpoint.on_train_batch_end(trainer, module, None, None, number)
    return found[1:]


def test_several_ranks_exchange_signals_once_a_second(monkeypatch):
    assert looks(monkeypatch, 1 / 16, 2, 50) == [1, 17, 33, 49]
    assert looks(monkeypatch, 0.001, 2) == [1, 101, 201, 301]
    assert looks(monkeypatch, 3.0, 2, 5) == [1, 2, 3, 4, 5]
    assert looks(monkeypatch, 0.001, 1, 5) == [1, 2, 3, 4, 5]


@pytest.mark.parametrize("known", [True, False])
def test_the_mean_over_labels_scales_all_gradients(monkeypatch, known):
    if not known:
        monkeypatch.delattr(torch, "_foreach_mul_")
    weights = [torch.nn.Parameter(torch.ones(2)), torch.nn.Parameter(torch.ones(3).double())]
    for weight in weights[:1]:
        weight.grad = torch.full_like(weight, 3.0)
    mean = LabelMean(world=1, parts=2)
    mean.weight(torch.tensor(2.0))
    mean.weight(torch.tensor(4.0))
    mean.finish(weights)
    assert weights[0].grad.tolist() == [1.0, 1.0]
    assert weights[1].grad is None


@pytest.mark.parametrize(("precision", "fused"), [("bf16-mixed", True), ("16-mixed", False)])
def test_gradients_are_clipped_for_a_fused_optimizer_too(monkeypatch, precision, fused):
    facts = types.SimpleNamespace(total_steps=10)
    monkeypatch.setattr(TrainingModule, "data", facts)
    module = TrainingModule(TrainConfig(precision=precision, lr=0.1, warmup_steps=0))
    module.model = torch.nn.Linear(2, 2)
    optimizer = module.configure_optimizers()["optimizer"]
    assert optimizer.defaults["fused"] == fused
    for clip, expected in ((None, 10.0), (20.0, 10.0), (5.0, 5.0)):
        module.model.weight.grad = torch.full((2, 2), 4.0)
        module.model.bias.grad = torch.tensor([0.0, 6.0])  # 4 * 16 + 36 = 10 * 10
        module.configure_gradient_clipping(optimizer, clip)
        norms = [parameter.grad.norm() for parameter in module.model.parameters()]
        assert torch.stack(norms).norm().item() == pytest.approx(expected, rel=1e-5)


def test_a_gpu_multiplies_float32_in_tf32_inside_of_a_run():
    usual = torch.get_float32_matmul_precision()
    for device, precision, expected in (
        ("cuda", "32-true", "high"),
        ("cuda", "64-true", usual),
        ("cpu", "64-true", usual),
    ):
        with fast_products(device, precision):
            assert torch.get_float32_matmul_precision() == expected
        assert torch.get_float32_matmul_precision() == usual


@pytest.mark.parametrize(("slow", "expected"), [(True, "medium"), (False, "highest")])
def test_onednn_multiplies_where_mkl_is_slow(monkeypatch, slow, expected):
    monkeypatch.setattr(machine, "_mkl_is_slow", lambda: slow)
    with fast_products("cpu", "32-true"):
        assert torch.get_float32_matmul_precision() == expected


def test_a_run_on_a_cpu_multiplies_all_24_bits_of_a_float32():
    x = torch.full((1000, 96), 1 + 2**-23).requires_grad_()
    weight = torch.eye(96, requires_grad=True)
    with fast_products("cpu", "32-true"):
        y = torch.nn.functional.linear(x, weight)
        y.backward(torch.full_like(y, 1 + 2**-23))
    assert torch.equal(y, x)
    assert torch.equal(x.grad, torch.full_like(x, 1 + 2**-23))
