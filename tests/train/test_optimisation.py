"""Schedule, weight decay, the average of the weights, adversarial noise: each by its formula."""

import types

import pytest
import torch
from torch_geometric.data import Data

from slicegraph.models import GraphSliceformer
from slicegraph.train.adversarial import adversarial_loss
from slicegraph.train.random_state import read_random_state, set_random_state
from slicegraph.train.schedule import warmup_and_decay
from slicegraph.train.weight_average import WeightAverage
from slicegraph.train.weight_decay import parameter_groups


def small_model(**fields) -> GraphSliceformer:
    return GraphSliceformer.from_preset("mini", num_layers=1, channels=8, heads=2, **fields)


def ethanol() -> Data:
    atom = [5, 0, 4, 5, 3, 0, 2, 0, 0]
    return Data(
        x=torch.tensor([atom, atom, [7, 0, 2, 5, 1, 0, 2, 0, 0]]),
        edge_index=torch.tensor([[0, 1, 1, 2], [1, 0, 2, 1]]),
        edge_attr=torch.zeros(4, 3, dtype=torch.long),
    )


def test_the_papers_schedule():
    factor = warmup_and_decay(2e-4, 60_000, 1_000_000, 1e-9)
    assert 2e-4 * factor(29_999) == pytest.approx(1e-4)
    assert factor(59_999) == 1.0
    half_way = 1e-9 + (2e-4 - 1e-9) * (1_000_000 - 530_000) / 940_000
    assert 2e-4 * factor(529_999) == pytest.approx(half_way)
    assert 2e-4 * factor(999_999) == pytest.approx(1e-9)
    assert 2e-4 * factor(2_000_000) == pytest.approx(1e-9)


def test_without_a_warm_up_the_first_update_has_the_full_rate():
    assert warmup_and_decay(1.0, 0, 10)(0) == 1.0


def test_only_matrices_decay():
    model = small_model(mixer="qkv", readout="token")
    decaying, others = parameter_groups(model, 0.1)
    assert (decaying["weight_decay"], others["weight_decay"]) == (0.1, 0.0)
    names = {id(parameter): name for name, parameter in model.named_parameters()}
    kept = {names[id(parameter)] for parameter in others["params"]}
    for name in ("embedding.nodes.weight", "embedding.token", "final_norm.weight", "head.bias"):
        assert name in kept
    assert "head.weight" in {names[id(parameter)] for parameter in decaying["params"]}
    assert len(decaying["params"]) + len(others["params"]) == len(list(model.parameters()))


def test_the_average_of_the_weights_follows_its_formula():
    weight = torch.nn.Linear(1, 1, bias=False)
    module = types.SimpleNamespace(model=weight, device="cpu")
    trainer = types.SimpleNamespace(global_step=0)
    average = WeightAverage(0.3)
    with torch.no_grad():
        weight.weight.fill_(1.0)
        average.on_fit_start(trainer, module)
        average.on_train_start(trainer, module)
        expected = 1.0
        for number, value in ((1, 2.0), (2, 4.0)):
            weight.weight.fill_(value)
            trainer.global_step = number
            average.on_train_batch_end(trainer, module)
            average.on_train_batch_end(trainer, module)  # a batch without an update
            decay = min(0.3, (1 + number) / (10 + number))
            expected = decay * expected + (1 - decay) * value
    assert average.average["weight"].item() == pytest.approx(expected)
    average.on_validation_start(trainer, module)
    assert weight.weight.item() == pytest.approx(expected)
    average.on_validation_end(trainer, module)
    assert weight.weight.item() == 4.0


def test_adversarial_noise_makes_the_loss_larger_and_leaves_no_trace():
    torch.manual_seed(0)
    model, graph = small_model().double(), ethanol()
    plain = (model.score(graph) - 1).square().sum()
    worse = adversarial_loss(model, lambda: (model.score(graph) - 1).square().sum(), 3, 0.01)
    assert worse > plain
    worse.backward()
    assert all(parameter.grad is not None for parameter in model.head.parameters())
    assert torch.equal((model.score(graph) - 1).square().sum(), plain)


def test_random_numbers_go_on_where_they_were():
    import random

    import numpy as np

    state = read_random_state()
    first = (random.random(), np.random.rand(), torch.rand(1).item())
    set_random_state(state)
    assert (random.random(), np.random.rand(), torch.rand(1).item()) == first
