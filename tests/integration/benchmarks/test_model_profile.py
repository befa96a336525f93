"""The profile of a network, on a tiny untuned one."""

from __future__ import annotations

import importlib.util
import json
import subprocess
import sys
from pathlib import Path

import pytest
from benchmarks.models.kernel_records import KernelState
from benchmarks.models.profile import call_table, make_table
from benchmarks.models.vm_profile import Call, Kernel, NetworkProfile
from repository import ROOT

pytestmark = pytest.mark.exhaustive


def write_tiny_model(path: Path) -> Path:
    spec = importlib.util.spec_from_file_location(
        "examples_tiny_convnet", ROOT / "examples" / "tiny_convnet.py"
    )
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    path.write_bytes(module.build_tiny_mlp().SerializeToString())
    return path


def test_it_times_every_kernel_within_the_network_and_alone(tmp_path: Path) -> None:
    model, out = write_tiny_model(tmp_path / "mlp.onnx"), tmp_path / "profile.json"
    command = [sys.executable, "-m", "benchmarks.models.profile", str(model), "--inferences", "3"]
    # A process of its own: it decides how many threads TVM has.
    done = subprocess.run(
        [*command, "--json", str(out), "--calls"], cwd=ROOT, capture_output=True, text=True, timeout=600
    )
    assert done.returncode == 0, done.stderr
    assert "untuned: no-record" in done.stdout
    written = json.loads(out.read_text())
    profile = written["profile"]
    assert profile["latency_sec"] > 0
    assert profile["kernels"]
    for kernel in profile["kernels"]:
        assert kernel["network_sec"] > 0
        assert kernel["alone_sec"] > 0
        assert kernel["cold_sec"] > 0
        assert kernel["name"] in written["kernels"]
    calls = [call["name"] for call in profile["calls"]]
    assert {kernel["name"]: kernel["calls"] for kernel in profile["kernels"]} == {
        name: calls.count(name) for name in calls
    }
    assert any(name.startswith("vm.builtin.") for name in profile["built_in_sec"])


def test_the_tables() -> None:
    dense = Kernel(
        name="dense", calls=2, shapes=((1, 4), (4,)), network_sec=2e-3, alone_sec=1e-3, cold_sec=1.5e-3
    )
    pool = Kernel(name="pool", calls=1, shapes=((),), network_sec=1e-3)
    profile = NetworkProfile(
        latency_sec=5.2e-3,
        watched_sec=5.5e-3,
        calls=tuple(Call(name=name, shapes=((1, 4),), network_sec=2e-3) for name in ("dense", "dense")),
        kernels=(dense, pool),
        built_in_sec={"vm.builtin.alloc_tensor": 1e-4, "vm.builtin.reshape": 1e-4},
    )
    text = make_table(profile, {"dense": KernelState(tunable=True, cost_sec=0.8e-3)})
    assert "| dense | 2 | 2 | 80.0 % | 1 | 1.5 | 0.8 | 2.00 | tuned | 1×4 4 |" in text
    assert "| pool | 1 | 1 | 20.0 % | – | – | – | – | ? | () |" in text
    assert "- kernels in the network 5 ms; the same alone – ms, with cold weights – ms" in text
    assert "- tuned kernels 4 ms in the network, 1.6 ms by their records" in text
    assert "- vm.builtin 0.2 ms" in text
    assert "| 1 | dense | 2 | 1×4 |" in call_table(profile)
