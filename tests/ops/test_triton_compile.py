"""The Triton kernels, compiled for sm_80 and sm_90 without a GPU.

No program may spill registers for sets of up to 64 rows (a molecule of PCQM4Mv2 has up to 51 atoms,
and a token), nor a mix up to 128 rows, nor a sort in half precision up to 1,024.

Run as a script (`python tests/ops/test_triton_compile.py 80 --all`) this file compiles the variants
for these architectures and prints what each one takes; with `--all`, every combination; with
`--mix`, only the programs of a layer.
"""

import itertools
import json
import os
import re
import subprocess
import sys
import tempfile
from typing import Any, NamedTuple

import pytest

ARCHITECTURES = (80, 90)
MIX_ROWS = (16, 32, 64, 128)
MOLECULE_ROWS = (2, 4, 8, 16, 32, 64)
BITS = {2: "*i16", 4: "*i32"}
INDICES = {0: None, 1: "*u8", 2: "*i16", 4: "*i32", 8: "*i64"}
LAYOUTS = ("dense", "lengths", "packed")
MASK = (False, True)


class Sort(NamedTuple):
    rows: int
    element_size: int  # float32, or the two half precisions: they share a kernel
    index_bytes: int
    layout: str
    mask: bool
    channels: int = 768


class Move(NamedTuple):
    scatter: bool
    element_size: int
    index_bytes: int
    layout: str


class Scan(NamedTuple):
    reverse: bool
    element_size: int  # sums are in float32 or float64


class Mix(NamedTuple):
    rows: int
    element_size: int
    reading: str
    gradient: bool
    width: int = 24


class Norm(NamedTuple):
    element_size: int
    gradient: bool
    channels: int = 768


def every_norm() -> list[Norm]:
    return list(itertools.starmap(Norm, itertools.product((2, 4), (False, True))))


def every_mix() -> list[Mix]:
    readings = ("none", "sort", "quantiles")
    return list(
        itertools.starmap(Mix, itertools.product(MIX_ROWS, (2, 4), readings, (False, True)))
    )


def chosen_mixes() -> list[Mix]:
    """The programs of the presets; each takes seconds."""
    readings = ((32, 2, "sort"), (64, 2, "quantiles"), (64, 4, "sort"), (128, 4, "sort"))
    pairs = [Mix(*reading, gradient) for reading in readings for gradient in (False, True)]
    return [Mix(16, 2, "none", True), *pairs]


def every_sort(rows: int) -> list[Sort]:
    return list(itertools.starmap(Sort, itertools.product([rows], BITS, INDICES, LAYOUTS, MASK)))


def chosen_sorts() -> list[Sort]:
    """Every type, index and layout at 2 rows; of the larger tiles, those most in need."""
    layouts, masks = itertools.cycle(LAYOUTS), itertools.cycle(MASK)
    smallest = [
        Sort(2, size, index_bytes, next(layouts), next(masks))
        for size in BITS
        for index_bytes in INDICES
    ]
    larger = [
        *(Sort(rows, 4, 8, "packed", True) for rows in (8, 32, 64)),
        *(Sort(64, 4, 0, "dense", False), Sort(64, 4, 1, "lengths", True)),
        Sort(64, 2, 8, "packed", True),
    ]
    few_channels = Sort(16, 4, 1, "lengths", False, channels=3)
    return [*smallest, *larger, few_channels, Sort(1024, 2, 8, "packed", True)]


def every_move() -> list[Move]:
    return [
        Move(scatter, element_size, index_bytes, layout)
        for scatter in (True, False)
        for (element_size, index_bytes), layout in zip(
            ((4, 1), (8, 8), (2, 1)), LAYOUTS, strict=True
        )
    ]


def every_scan() -> list[Scan]:
    return list(itertools.starmap(Scan, itertools.product((False, True), (4, 8))))


@pytest.mark.slow
def test_no_variant_spills_registers_in_the_range_of_molecules():
    pytest.importorskip("triton")
    # The tests of this process run in the interpreter, where nothing is compiled.
    environment = {k: v for k, v in os.environ.items() if k != "TRITON_INTERPRET"}
    words = [sys.executable, __file__, *map(str, ARCHITECTURES)]
    done = subprocess.run(words, env=environment, capture_output=True, text=True)
    assert done.returncode == 0, done.stderr
    usages = [json.loads(line) for line in done.stdout.splitlines()]
    for arch in ARCHITECTURES:
        starved, *found = [usage for usage in usages if usage["arch"] == arch]
        assert starved["stack"] > 0, f"sm_{arch}: a spill was provoked and not seen"
        assert len(found) == len(chosen())
        spilling = [usage for usage in found if usage["stack"]]
        assert not spilling, f"sm_{arch}: {spilling}"


def compiled(kernel: Any, arguments: dict[str, Any], arch: int, **options: Any) -> Any:
    """A compiled kernel; an argument is a type of Triton's or, if not a string, a constant."""
    import triton
    from triton.backends.compiler import GPUTarget
    from triton.compiler import ASTSource

    types = {k: v if isinstance(v, str) else "constexpr" for k, v in arguments.items()}
    constants = {k: v for k, v in arguments.items() if not isinstance(v, str)}
    source, target = ASTSource(kernel, types, constants), GPUTarget("cuda", arch, 32)
    return triton.compile(source, target=target, options=options)


def compile_sort(variant: Sort, arch: int, **options: Any) -> Any:
    from slicegraph.ops import triton as backend

    log, block, warps = backend.tile_shape(variant.rows, variant.channels, variant.element_size)
    arguments = {
        "x": BITS[variant.element_size],
        "values": BITS[variant.element_size],
        "indices": INDICES[variant.index_bytes],
        "lengths": "*i64" if variant.layout == "lengths" else None,
        "ptr": "*i64" if variant.layout == "packed" else None,
        "mask": "*u8" if variant.mask else None,
        **dict.fromkeys(("rows", "descending", "inf"), "i32"),
        **{"C": variant.channels, "LOG": log, "BLOCK_C": block},
    }
    options = {**backend.launch_options(log, warps, variant.element_size), **options}
    return compiled(backend.sort_tile, arguments, arch, **options)


def compile_move(variant: Move, arch: int) -> Any:
    from slicegraph.ops import triton as backend

    bits = {**BITS, 8: "*i64"}[variant.element_size]
    arguments = {
        "x": bits,
        "indices": INDICES[variant.index_bytes],
        "lengths": "*i64" if variant.layout == "lengths" else None,
        "starts": "*i64" if variant.layout == "packed" else None,
        "out": bits,
        **dict.fromkeys(("rows", "channels"), "i32"),
        **{"SCATTER": variant.scatter, "BLOCK_R": 8, "BLOCK_C": 128},
    }
    return compiled(backend.move_tile, arguments, arch, **backend.OPTIONS)


def compile_scan(variant: Scan, arch: int) -> Any:
    from slicegraph.ops import triton as backend

    rows, width = backend.SCAN_TILE
    arguments = {
        **dict.fromkeys(("x", "decay", "out"), {4: "*fp32", 8: "*fp64"}[variant.element_size]),
        **dict.fromkeys(("rows", "heads", "width"), "i32"),
        **{"REVERSE": variant.reverse, "BLOCK_R": rows, "BLOCK_D": width},
    }
    return compiled(backend.scan_tiles, arguments, arch, **backend.OPTIONS)


def compile_mix(variant: Mix, arch: int) -> Any:
    from slicegraph.ops import triton as backend

    log, block, warps = backend.mix_shape(variant.rows, variant.width)
    rows, sort = {2: "*bf16", 4: "*fp32"}[variant.element_size], variant.reading == "sort"
    quantiles = 5 if variant.reading == "quantiles" else 0
    seen = {  # the pointers that a reading needs
        "weight": "*fp32" if quantiles else None,
        "ranks": "*u8" if sort or quantiles else None,
        "quantiles": rows if quantiles else None,
    }
    both = {
        **dict.fromkeys(("values",), rows),
        **{"bias": "*fp32", "lengths": "*i64", "seed": "i64", **seen},
        **{"rows": "i32", "dropped": "i32", "scale": "fp32"},
        **{"HEADS": 32, "WIDTH": variant.width, "LOG": log, "BLOCK_D": block, "SORT": sort},
        **{"QUANTILES": quantiles, "SOFTMAX": True, "TF32": True},
    }
    if not variant.gradient:
        more = {"mask": "*u8" if sort else None, "out": rows, "descending": "i32", "inf": "i32"}
        return compiled(backend.mix_tile, {**both, **more}, arch, num_warps=warps)
    more = {"grad_out": rows, "added": "*fp32", "grad_values": rows, "grad_bias": "*fp32"}
    more["grad_weight"] = "*fp32" if quantiles else None
    more |= backend.gradient_shape(log, warps, variant.element_size)
    warps = more.pop("num_warps")
    return compiled(backend.mix_gradient_tile, {**both, **more}, arch, num_warps=warps)


def compile_norm(variant: Norm, arch: int) -> Any:
    from slicegraph.ops import triton as backend

    rows = {2: "*bf16", 4: "*fp32"}[variant.element_size]
    block_r, block_c, warps = backend.norm_shape(variant.channels)
    arguments = {
        **{"total": rows, "weight": "*fp32", "seed": "i64", "rows": "i32", "dropped": "i32"},
        **{"scale": "fp32", "eps": "fp32", "C": variant.channels},
        **{"BLOCK_R": block_r, "BLOCK_C": block_c},
    }
    if not variant.gradient:
        arguments |= {**dict.fromkeys(("x", "added", "out"), rows), "bias": "*fp32"}
        return compiled(backend.norm_tile, arguments, arch, num_warps=warps)
    arguments |= dict.fromkeys(("grad_total", "grad_out", "grad_added", "grad_x"), rows)
    arguments |= {"sums": "*fp32", "TILES": backend.NORM_TILES}
    return compiled(backend.norm_gradient_tile, arguments, arch, num_warps=warps)


Variant = Sort | Mix | Move | Scan | Norm


def chosen() -> list[Variant]:
    return [*chosen_sorts(), *chosen_mixes(), *every_move(), *every_scan(), *every_norm()]


def compile_variant(variant: Variant, arch: int) -> Any:
    compilers: dict[type, Any] = {
        **{Sort: compile_sort, Mix: compile_mix, Move: compile_move},
        **{Scan: compile_scan, Norm: compile_norm},
    }
    return compilers[type(variant)](variant, arch)


def usage(variant: Variant, kernel: Any, arch: int) -> dict[str, Any]:
    """What the program takes of a thread; the kernels have nothing on the stack but spills."""
    from triton import knobs

    with tempfile.NamedTemporaryFile(suffix=".cubin") as file:
        file.write(kernel.asm["cubin"])
        file.flush()
        command = [knobs.nvidia.cuobjdump.path, "--dump-resource-usage", file.name]
        text = subprocess.run(command, capture_output=True, text=True, check=True).stdout
    registers, stack, local = (
        int(re.search(rf"{field}:(\d+)", text)[1]) for field in ("REG", "STACK", "LOCAL")
    )
    shared, warps = kernel.metadata.shared, kernel.metadata.num_warps
    found = {
        "arch": arch,
        "registers": registers,
        "stack": stack + local,
        "shared": shared,
        "warps": warps,
    }
    return {**variant._asdict(), **found}


def variants() -> list[Variant]:
    if "--mix" in sys.argv:
        return [*every_mix(), *every_norm()]
    if "--all" in sys.argv:
        sorts = [variant for rows in MOLECULE_ROWS for variant in every_sort(rows)]
        return [*sorts, *chosen_mixes(), *every_move(), *every_scan(), *every_norm()]
    return chosen()


def main() -> None:
    starved = Sort(32, 4, 8, "dense", False)
    for arch in [int(word) for word in sys.argv[1:] if not word.startswith("--")]:
        if "--mix" not in sys.argv:
            kernel = compile_sort(starved, arch, maxnreg=40)
            print(json.dumps(usage(starved, kernel, arch)), flush=True)
        for variant in variants():
            print(json.dumps(usage(variant, compile_variant(variant, arch), arch)), flush=True)


if __name__ == "__main__":
    main()
