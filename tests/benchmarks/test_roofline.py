"""The arithmetic of a step on paper against torch's own count of it."""

from torch.utils.flop_counter import FlopCounterMode

from benchmarks.roofline import MACHINES, Step, table
from slicegraph.cli.gpu_check import molecules
from slicegraph.models import GraphSliceformer
from slicegraph.models.graph import preset
from slicegraph.ops.operator import as_on_gpu


def test_the_operations_of_a_layer_are_those_that_torch_counts():
    batch, counts = molecules(4), []
    sizes = {"channels": 16, "ffn_channels": 32, "heads": 4}
    for layers in (2, 3):
        model = GraphSliceformer(preset("sliceformer-base", **sizes, num_layers=layers))
        with as_on_gpu(), FlopCounterMode(display=False) as counter:
            model(batch).sum().backward()
        counts.append(counter.get_total_flops())
    step = Step(molecules=4, rows=batch.max_nodes + 1, channels=16, ffn=32, heads=4)
    assert counts[1] - counts[0] == step.layer_flops


def test_four_gpus_share_the_molecules_and_exchange_the_gradients():
    step = Step(parameters=32_000_000)
    cells = {line.split("|")[1].strip(): line.split("|") for line in table(step)}
    four = cells["4 x RTX 3090"]
    rows = step.molecules // 4 * step.rows
    expected = 12 * 6 * rows * (4 * 768**2 + step.rows * 768) / MACHINES[2].flops
    assert four[2].strip() == f"{1e3 * expected:.2f} ms"
    assert four[4].strip() == "3.00 ms"  # 1.5 x 2 bytes x 32 million over 32 GB/s
