"""An update from parts of a batch is the update from the whole of it."""

import pytest
import torch
from support.tiny_run import tiny_config, write_table

from slicegraph.train import train
from slicegraph.train.label_mean import LabelMean

MOLECULES = 47
"""37 to train on, in batches of 8, 8, 8, 7 and 6, whose halves and quarters are of unequal size."""


def trained(folder, parts: int) -> dict[str, torch.Tensor]:
    config = tiny_config(
        folder,
        out=str(folder / f"parts{parts}"),
        targets=("gap", "gaps"),
        accumulate=parts,
        dropout=0.0,
        epochs=2,
        lr=1e-3,
    )
    result = train(config, progress=False)
    assert result.metrics["steps"] == 10
    return torch.load(result.folder / "checkpoints" / "last.ckpt", weights_only=True)["state_dict"]


@pytest.fixture(scope="module")
def whole(tmp_path_factory):
    folder = tmp_path_factory.mktemp("accumulation")
    write_table(folder / "table.csv", MOLECULES, "gap,gaps")
    return folder, trained(folder, 1)


@pytest.mark.parametrize("parts", [2, 4])
def test_accumulated_parts_make_the_update_of_the_whole_batch(whole, parts):
    folder, expected = whole
    found = trained(folder, parts)
    for name, weight in expected.items():
        torch.testing.assert_close(found[name], weight, rtol=0, atol=1e-6, msg=name)


def test_parts_with_more_labels_count_more():
    torch.manual_seed(0)
    weight = torch.nn.Parameter(torch.randn(3, dtype=torch.float64))
    parts = [torch.randn(count, 3, dtype=torch.float64) for count in (2, 0, 5)]
    (torch.cat(parts) @ weight).square().mean().backward()
    expected, weight.grad = weight.grad, None
    mean = LabelMean(world=1, parts=3)
    for part in parts:
        total = (part @ weight).square().sum() * mean.weight(torch.tensor(len(part)))
        (total / 3).backward()  # as Lightning does
    mean.finish([weight])
    torch.testing.assert_close(weight.grad, expected)
