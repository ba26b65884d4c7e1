import os
import subprocess
import sys
from importlib import metadata
from types import SimpleNamespace

import pytest
import torch

import slicegraph
from slicegraph.cli import gpu_check, main
from slicegraph.models.presets import PRESETS
from slicegraph.ops import use_backend
from slicegraph.ops.operator import BACKENDS, available, choose


@pytest.fixture
def output(capsys):
    def run(*arguments: str) -> list[str]:
        assert main(arguments) == 0
        return capsys.readouterr().out.splitlines()

    return run


@pytest.fixture
def no_triton(monkeypatch):
    monkeypatch.setattr(BACKENDS["triton"], "problem", lambda device_type: "a made-up reason")
    with use_backend("reference"):  # forgets what was chosen before
        pass


def row(lines: list[str], name: str) -> str:
    return next(line.split(maxsplit=1)[1] for line in lines if line.startswith(f"  {name} "))


def command(*arguments: str, folder, **environment: str) -> subprocess.CompletedProcess[str]:
    environment = {**os.environ, **environment}
    words = [sys.executable, "-m", "slicegraph", *arguments]
    return subprocess.run(words, cwd=folder, env=environment, capture_output=True, text=True)


def test_info_shows_the_installed_versions_and_the_thread_count(output):
    lines = output("info")
    for package in ("torch", "torch-geometric", "ogb", "rdkit"):
        assert row(lines, package) == metadata.version(package)
    assert f" {torch.get_num_threads()} threads," in row(lines, "cpu")


def test_info_shows_that_a_package_is_missing(output, monkeypatch):
    def version(package: str) -> str:
        raise metadata.PackageNotFoundError(package)

    monkeypatch.setattr(metadata, "version", version)
    assert row(output("info"), "torch-scatter") == "not installed"


def test_info_shows_the_simd_level(output):
    if "cpu" not in available("cpu"):
        pytest.skip("the C++ kernels are not built")
    from slicegraph.ops import cpu

    assert row(output("info"), "cpu").endswith(f"SIMD level {cpu.simd_level()}")


def test_info_shows_which_backend_is_active_and_why_another_is_not(output, no_triton):
    lines = output("info")
    active = [line.split()[0] for line in lines if line.endswith(" active")]
    assert active == [choose("cpu").__name__.rpartition(".")[2]]
    backends = lines[lines.index("Backends for cpu tensors") :]
    assert row(backends, "triton") == "not available: a made-up reason"


def test_info_shows_the_backend_in_force(output):
    with use_backend("reference"):
        lines = output("info")
    assert row(lines, "reference") == "active"


def test_info_shows_cuda_devices(output, monkeypatch):
    device = SimpleNamespace(name="Some GPU", major=9, minor=0, total_memory=80 * 2**30)
    monkeypatch.setattr(torch.cuda, "is_available", lambda: True)
    monkeypatch.setattr(torch.cuda, "device_count", lambda: 1)
    monkeypatch.setattr(torch.cuda, "get_device_properties", lambda number: device)
    lines = output("info")
    assert row(lines, "cuda:0") == "Some GPU, sm_90, 80 GiB"
    assert "Backends for cuda tensors" in lines


def test_an_unknown_backend_is_an_error_line_and_not_a_traceback(capsys, monkeypatch):
    monkeypatch.setenv("SLICEGRAPH_BACKEND", "nonsense")
    with use_backend("nonsense"):  # as if it had been there when the package was imported
        assert main(["info"]) == 2
    printed = capsys.readouterr()
    assert printed.err.startswith("slicegraph: error: SLICEGRAPH_BACKEND: 'nonsense' ")
    assert printed.err.count("\n") == 1
    assert "nonsense" in printed.out
    assert "Versions" in printed.out


def test_an_unavailable_backend_is_an_error(capsys, no_triton):
    with use_backend("triton"):
        assert main(["info"]) == 2
    assert "'triton' cannot serve cpu tensors: a made-up reason" in capsys.readouterr().err


def test_the_module_is_the_command(tmp_path):
    done = command("--version", folder=tmp_path)
    assert (done.returncode, done.stdout) == (0, f"slicegraph {slicegraph.__version__}\n")


def test_without_a_command_it_prints_the_help(output):
    assert output()[0].startswith("usage: slicegraph ")


def test_an_unknown_command_lists_the_known_ones(capsys):
    with pytest.raises(SystemExit) as exit:
        main(["inform"])
    assert exit.value.code == 2
    assert "info" in capsys.readouterr().err.rpartition("choose from")[2]


def test_the_help_does_not_import_torch(tmp_path):
    code = "import sys; sys.modules['torch'] = None; from slicegraph.cli import main; main([])"
    done = subprocess.run([sys.executable, "-c", code], cwd=tmp_path, capture_output=True)
    assert done.returncode == 0, done.stderr


def test_info_names_the_cache_of_prepared_tables_and_its_size(output, monkeypatch, tmp_path):
    folder = tmp_path / "cache"
    module = SimpleNamespace(cache_folder=lambda: folder)
    monkeypatch.setitem(sys.modules, "slicegraph.data.datasets.csv", module)
    assert row(output("info"), "size") == "empty"
    (folder / "one").mkdir(parents=True)
    (folder / "one" / "atoms.npy").write_bytes(bytes(1_500_000))
    lines = output("info")
    assert row(lines, "folder").startswith(str(folder))
    assert row(lines, "size") == "1.5 MB in 1 files"


def test_gpu_check_prints_a_page_on_the_cpu_too(output):
    lines = output("info", "--gpu-check")
    assert "no GPU" in lines[0]
    for name in ("column_sort of packed sets, float32", "dense_mix, quantiles, float32"):
        assert any(line.startswith(name) for line in lines)
    assert not any("FAILED" in line for line in lines)
    for name in PRESETS:
        assert any(line.split()[:1] == [name] for line in lines)
    assert lines[-1].startswith("GPSConv of PyG")


def test_gpu_check_names_a_kernel_that_differs(capsys, monkeypatch):
    factors = iter((1.0, 1.01))  # for the kernel, and for the reference
    monkeypatch.setattr(gpu_check, "PRESETS", {})
    monkeypatch.setattr(gpu_check, "RATED", ())
    monkeypatch.setattr(gpu_check, "max_exchange", lambda x, ptr: x * next(factors))
    assert main(["info", "--gpu-check"]) == 2
    out, error = capsys.readouterr()
    assert [line.split(",")[0] for line in out.splitlines() if "FAILED" in line] == ["max_exchange"]
    assert "1 checks failed" in error
