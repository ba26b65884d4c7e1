"""The least time of a training step on GPUs, on paper: `python -m benchmarks.roofline`.

Nothing here is measured. A step needs at least its arithmetic at the peak rate of the matrix units,
and at least its bytes at the bandwidth of the memory. A batch has B molecules of N rows (padding
and the token included) and C channels, L layers, H heads, P parameters; values are bfloat16, the
bias of the pairs, the master weights and the optimizer are float32.
"""

import argparse
from typing import NamedTuple

from benchmarks.markdown import row


class Machine(NamedTuple):
    """The peak of bfloat16 products with sums in float32, and the bandwidth, by their vendor."""

    name: str
    flops: float  # a second, of one GPU, without sparsity
    bandwidth: float  # bytes a second, of one GPU
    gpus: int = 1
    link: float = 0.0  # bytes a second between two GPUs


MACHINES = (
    Machine("A100 SXM 80 GB", 312e12, 2.04e12),
    Machine("H100 SXM", 989e12, 3.35e12),
    Machine("4 x RTX 3090", 71e12, 0.936e12, 4, 32e9),  # PCIe 4.0 x16
)


class Step(NamedTuple):
    """The sizes of a step: those of `sliceformer-base` on molecules of PCQM4Mv2."""

    molecules: int = 256
    rows: int = 16  # 14.1 atoms on average, the token, and padding
    channels: int = 768
    ffn: int = 768
    heads: int = 32
    layers: int = 12
    parameters: int = 28_634_049

    @property
    def layer_flops(self) -> float:
        """Forward and backward, 3 x 2 operations for each product of two numbers:
        3 x 2 B N (2 C^2 + 2 C F) in the linear layers, 3 x 2 B N^2 C in the mix."""
        rows = self.molecules * self.rows
        linear = 2 * self.channels**2 + 2 * self.channels * self.ffn
        return 6 * rows * linear + 6 * rows * self.rows * self.channels

    @property
    def mix_bytes(self) -> tuple[float, float]:
        """Of the fused kernels of a layer: values in, values out, ranks of one byte, and the bias:
        B N C (2 + 2 + 1) + 4 B H N^2 forward; B N C (2 + 2 + 2 + 1) + 3 x 4 B H N^2 backward."""
        values = self.molecules * self.rows * self.channels
        bias = 4 * self.molecules * self.heads * self.rows**2
        return 5 * values + bias, 7 * values + 3 * bias

    @property
    def layer_bytes(self) -> float:
        """The kernels of `benchmarks.launches --operators`, each tensor of B N C values read or
        written once by each: 19 x 2 B N C forward and 38 x 2 B N C backward, besides the mix."""
        return 57 * 2 * self.molecules * self.rows * self.channels + sum(self.mix_bytes)

    @property
    def optimizer_bytes(self) -> float:
        """Weight read and copied to bfloat16, copy read forward and backward; gradient written in
        bfloat16, read, and written in float32; AdamW reads it, and reads and writes the weight and
        two moments: (4 + 2 + 2 x 2 + 2 + 2 + 4 + 4 + 3 x 8) P."""
        return 46 * self.parameters


def table(step: Step) -> list[str]:
    """The rows of the table in Markdown."""
    lines = [row("machine", "arithmetic", "memory", "gradients", "at least", "molecules a second")]
    lines.append(row(*["---"] * 6))
    for machine in MACHINES:
        part = step._replace(molecules=step.molecules // machine.gpus)
        arithmetic = step.layers * part.layer_flops / machine.flops
        memory = (step.layers * part.layer_bytes + step.optimizer_bytes) / machine.bandwidth
        # A ring sends 2 (G - 1) / G of the gradients, in bfloat16, over every link.
        shared = 2 * (machine.gpus - 1) / machine.gpus * 2 * step.parameters
        gradients = shared / machine.link if machine.gpus > 1 else 0.0
        least = max(arithmetic, memory, gradients)
        times = (f"{1e3 * time:.2f} ms" for time in (arithmetic, memory, gradients, least))
        lines.append(row(machine.name, *times, f"{step.molecules / least:,.0f}"))
    return lines


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    for name, default in Step()._asdict().items():
        parser.add_argument(f"--{name}", type=int, default=default, help=f"default: {default:,}")
    step = Step(**vars(parser.parse_args()))
    print(f"{step.layers * step.layer_flops / 1e12:.2f} TFLOP a step, ", end="")
    print(f"{(step.layers * step.layer_bytes + step.optimizer_bytes) / 1e9:.2f} GB;", end=" ")
    forward, backward = (f"{size / 1e6:.1f} MB" for size in step.mix_bytes)
    print(f"the mix of a layer: {forward} forward, {backward} backward\n")
    print("\n".join(table(step)))


if __name__ == "__main__":
    main()
