"""Muon and AdamW, which parameters each updates, and the schedule of the learning rate."""

import pytest
import torch
from support.tiny_run import MODEL

from slicegraph.models import GraphSliceformer, preset
from slicegraph.train.optimizer import (
    Muon,
    make_optimizer,
    orthogonalise,
    parameter_groups,
    warmup_and_decay,
)


def model(**fields) -> GraphSliceformer:
    torch.manual_seed(0)
    return GraphSliceformer(preset("mini", **MODEL | fields))


def with_gradients(net: torch.nn.Module) -> torch.nn.Module:
    torch.manual_seed(1)
    for parameter in net.parameters():
        parameter.grad = torch.randn_like(parameter)
    return net


@pytest.mark.parametrize("shape", [(6, 6), (4, 9), (9, 4), (1, 5)])
def test_a_round_is_a_polynomial_of_the_singular_values(shape):
    torch.manual_seed(0)
    matrices = torch.randn(3, *shape, dtype=torch.float64)
    u, s, v = torch.linalg.svd(matrices, full_matrices=False)
    s = s / s.square().sum(-1, keepdim=True).sqrt()
    for _ in range(5):
        s = 3.4445 * s - 4.775 * s**3 + 2.0315 * s**5
    torch.testing.assert_close(orthogonalise(matrices), u @ s.diag_embed() @ v)


def test_a_matrix_of_zeros_has_no_update():
    assert not orthogonalise(torch.zeros(1, 3, 4)).any()


@pytest.mark.skipif(not hasattr(torch.optim, "Muon"), reason="torch.optim.Muon needs torch 2.9")
def test_matrices_are_updated_as_by_torch():
    torch.manual_seed(0)
    own = [torch.randn(shape, requires_grad=True) for shape in ((8, 24), (24, 8), (8, 24))]
    theirs = [weight.detach().clone().requires_grad_() for weight in own]
    options = {"lr": 0.01, "weight_decay": 0.1}
    muon = Muon([{"params": own, "orthogonal": True}], **options)
    expected = torch.optim.Muon(theirs, adjust_lr_fn="match_rms_adamw", **options)
    for _ in range(3):
        for weight, other in zip(own, theirs, strict=True):
            weight.grad = other.grad = torch.randn_like(weight)
        muon.step()
        expected.step()
    for weight, other in zip(own, theirs, strict=True):  # theirs computes in bfloat16
        torch.testing.assert_close(weight, other, atol=1e-3, rtol=0)


def test_muon_updates_the_linear_layers_of_the_blocks_and_adamw_all_others():
    net = with_gradients(model(mixer="qkv"))
    twin = with_gradients(model(mixer="qkv"))
    before = {name: value.clone() for name, value in net.named_parameters()}
    make_optimizer(net, "muon", lr=0.01, weight_decay=0.1).step()
    make_optimizer(twin, "adamw", lr=0.01, weight_decay=0.1).step()
    linear = {f"{name}.weight" for name, m in net.named_modules() if isinstance(m, torch.nn.Linear)}
    orthogonal = set()
    for (name, value), other in zip(net.named_parameters(), twin.parameters(), strict=True):
        if not torch.equal(value, other):
            orthogonal.add(name)
            update = before[name] * (1 - 0.01 * 0.1) - value
            expected = 0.2 * 0.01 * max(value.shape) ** 0.5 * orthogonalise(value.grad[None])[0]
            torch.testing.assert_close(update, expected, atol=1e-6, rtol=1e-4)
    assert orthogonal == {name for name in linear if name.startswith("blocks.")}


def test_muon_goes_on_from_its_state():
    runs = []
    for stops in (False, True):
        net = with_gradients(model())
        optimizer = make_optimizer(net, "muon", lr=0.01, weight_decay=0.0)
        optimizer.step()
        if stops:
            state = optimizer.state_dict()
            optimizer = make_optimizer(net, "muon", lr=1.0, weight_decay=0.5)
            optimizer.load_state_dict(state)
        optimizer.step()
        runs.append(list(net.parameters()))
    assert all(torch.equal(one, other) for one, other in zip(*runs, strict=True))


def test_a_closure_empties_the_gradients_of_all_groups():
    weights = [torch.ones(2, 3, requires_grad=True) for _ in range(2)]
    groups = [{"params": [weights[0]]}, {"params": [weights[1]], "orthogonal": True}]
    optimizer = Muon(groups, lr=0.01)

    def closure() -> torch.Tensor:
        optimizer.zero_grad()
        loss = sum(weight.sum() for weight in weights)
        loss.backward()
        return loss

    assert optimizer.step(closure) == 12.0
    optimizer.step(closure)
    assert all(torch.equal(weight.grad, torch.ones(2, 3)) for weight in weights)


def test_a_parameter_without_a_gradient_stays():
    weight = torch.ones(2, 3, requires_grad=True)
    Muon([{"params": [weight], "orthogonal": True, "weight_decay": 0.1}], lr=1.0).step()
    assert torch.equal(weight, torch.ones(2, 3))


def test_the_schedule_of_the_paper():
    factor = warmup_and_decay(2e-4, 60_000, 1_000_000, 1e-9)
    half_way = 1e-9 + (2e-4 - 1e-9) * (1_000_000 - 530_000) / 940_000
    expected = {29_999: 1e-4, 59_999: 2e-4, 529_999: half_way, 999_999: 1e-9, 2_000_000: 1e-9}
    assert {step: 2e-4 * factor(step) for step in expected} == pytest.approx(expected)
    assert warmup_and_decay(1.0, 0, 10)(0) == 1.0


def test_only_matrices_decay():
    net = model(mixer="qkv", readout="token")
    decaying, others = parameter_groups(net, 0.1)
    assert (decaying["weight_decay"], others["weight_decay"]) == (0.1, 0.0)
    names = {id(parameter): name for name, parameter in net.named_parameters()}
    kept = {names[id(parameter)] for parameter in others["params"]}
    assert {"embedding.nodes.weight", "embedding.token", "final_norm.weight", "head.bias"} <= kept
    assert "head.weight" in {names[id(parameter)] for parameter in decaying["params"]}
    assert len(decaying["params"]) + len(others["params"]) == len(list(net.parameters()))
