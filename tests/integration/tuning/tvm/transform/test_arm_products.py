"""Networks on emulated Arm CPUs: quantised ones multiply bytes by the best instruction there is, with ONNX Runtime's results."""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

import bfloat16_networks
import numpy as np
import onnx
import pytest
from arm_kernels import assemblies, left_in_floats, load
from emulated_arm import CORTEX_A72, MAX, NEOVERSE_N1, ArmCpu, emulated_machine, run_folders
from llvm_cpus import cpus_of
from numpy.typing import NDArray
from onnx_models import (
    branching,
    conv_1d,
    encoder_block,
    mlp,
    mobile_block,
    residual_net,
    squeeze_excite,
    u_net,
)
from onnx_reference import reference_outputs
from quantised_forms import FORMS, SMALL_GROUPS
from quantised_networks import NETWORKS, conv, lstm

from tunefarm_tuning.reference.comparison import compare_arrays
from tunefarm_tuning.reference.random_inputs import random_inputs
from tunefarm_tuning.target.dot_products import SDOT, SMMLA, ByteProducts, bfloat16_lanes, byte_products
from tunefarm_tuning.target.parse import parse_target
from tunefarm_tuning.target.target import Target
from tunefarm_tuning.tvm.base.target import cpu_features
from tunefarm_tuning.tvm.codegen.graph_build import build_model
from tunefarm_tuning.workload.precision import Precision

TRIPLE = "aarch64-linux-gnu"
A72 = parse_target(f"llvm -mcpu=cortex-a72 -mattr=-aes -mtriple={TRIPLE}")
N1 = parse_target(f"llvm -mcpu=neoverse-n1 -mtriple={TRIPLE}")
NEWER = parse_target(f"llvm -mcpu=generic -mattr=+bf16,+dotprod,+fullfp16,+i8mm -mtriple={TRIPLE}")
FLOATS: dict[str, Callable[[], onnx.ModelProto]] = {
    "residual": residual_net,
    "mlp": mlp,
    "mobile": mobile_block,
    "squeeze": squeeze_excite,
    "encoder": encoder_block,
    "conv 1d": conv_1d,
    "u": u_net,
    "branching": branching,
}
LAYERS = {
    "lstm": lstm(32),
    "lstm, odd": lstm(37, batch=3),
    "lstm, both ways": lstm(20, direction="bidirectional"),
}
BFLOAT16_NETWORKS = {
    **bfloat16_networks.NETWORKS,
    "large": bfloat16_networks.conv([1, 64, 28, 28], 96, 3, pads=[1] * 4),
}
ALL = {**NETWORKS, **FORMS, **SMALL_GROUPS}
OF_A_ROW = {"a row", "dynamic, a row", "rows of one"}
"""Networks whose products have a single row, half of which an instruction for two rows would waste."""
PROGRAM = """
import sys
from pathlib import Path
import numpy as np
import tvm
from tvm import relax
for folder in sorted(Path(sys.argv[1]).iterdir()):
    if (folder / "outputs.npz").exists():
        continue
    machine = relax.VirtualMachine(tvm.runtime.load_module(str(folder / "lib.so")), tvm.cpu())
    with np.load(folder / "inputs.npz") as inputs:
        values = [tvm.runtime.tensor(inputs[f"arr_{number}"]) for number in range(len(inputs.files))]
    results = machine["main"](*values)
    results = [results] if isinstance(results, tvm.runtime.Tensor) else list(results)
    np.savez(folder / "part.npz", *[result.numpy() for result in results])
    (folder / "part.npz").rename(folder / "outputs.npz")
"""

Arrays = list[NDArray[Any]]


def run_all(
    models: Mapping[str, onnx.ModelProto],
    cpu: ArmCpu,
    target: Target,
    folder: Path,
    precision: Precision = Precision.AS_MODEL,
) -> dict[str, tuple[Arrays, Arrays]]:
    """Build networks here and run them on an emulated CPU, in one process; return its outputs and ONNX Runtime's."""
    machine = emulated_machine(cpu)
    runs, expected = folder / "runs", {}
    for name, model in models.items():
        loaded = load(model, runs / name, target, precision)
        values = random_inputs(loaded.inputs, seed=3)
        build_model(loaded.module, target, runs / name / "lib.so")
        np.savez(runs / name / "inputs.npz", *values)
        expected[name] = list(reference_outputs(runs / name / "model.onnx", loaded, values))
    (folder / "run.py").write_text(PROGRAM)
    run_folders(machine, folder / "run.py", runs, "outputs.npz")
    results = {}
    for name, theirs in expected.items():
        with np.load(runs / name / "outputs.npz") as outputs:
            results[name] = ([outputs[key] for key in outputs.files], theirs)
    return results


@pytest.mark.exhaustive
@pytest.mark.parametrize(
    ("cpu", "target"),
    [(NEOVERSE_N1, N1), (MAX, NEWER)],
    ids=["n1", "max"],
)
def test_quantised_networks_agree_with_onnx_runtime(cpu: ArmCpu, target: Target, tmp_path: Path) -> None:
    for name, (ours, theirs) in run_all(ALL, cpu, target, tmp_path).items():
        for mine, reference in zip(ours, theirs, strict=True):
            assert (mine.shape, mine.dtype) == (reference.shape, reference.dtype)
            # A step of the last rounding is 0.03 at most; few results lie so near the middle between two that they differ.
            apart = np.abs(mine - reference)
            assert apart.max() < 0.031, name
            assert np.mean(apart > 1e-4) < 0.02, name


@pytest.mark.exhaustive
@pytest.mark.parametrize(("cpu", "target"), [(CORTEX_A72, A72), (MAX, NEWER)], ids=["a72", "max"])
def test_other_networks_agree_with_onnx_runtime(cpu: ArmCpu, target: Target, tmp_path: Path) -> None:
    """Twenty networks: floats, rounded states, and quantised networks, which a Cortex-A72 computes in floats."""
    quantised = dict(list(NETWORKS.items())[:9])
    models = {**{name: make() for name, make in FLOATS.items()}, **LAYERS, **quantised}
    for name, (ours, theirs) in run_all(models, cpu, target, tmp_path).items():
        for mine, reference in zip(ours, theirs, strict=True):
            comparison = compare_arrays(name, mine, reference)
            assert comparison.ok or name in quantised, f"{name}: {comparison.message}"
            assert np.abs(mine - reference).max() < 0.031


@pytest.mark.matrix(every=26, each_value=False)
@pytest.mark.parametrize("name", [*ALL, *LAYERS])
@pytest.mark.parametrize("target", [N1, NEWER], ids=["n1", "max"])
def test_every_kernel_multiplies_with_the_instruction(name: str, target: Target, tmp_path: Path) -> None:
    texts = assemblies({**ALL, **LAYERS}[name], tmp_path, target)
    assert texts
    assert not left_in_floats(tmp_path, target)
    instruction = (
        "(sdot|smmla)"
        if name in (*LAYERS, *SMALL_GROUPS) or name.startswith(("groups", "depthwise"))
        else "smmla"
        if target is NEWER and name not in OF_A_ROW
        else "sdot"
    )
    for text in texts:
        assert re.search(rf"^\t{instruction}\t", text, re.MULTILINE)
        assert not re.search(r"^\ts(mull|mlal)2?\tv\d+\.8h", text, re.MULTILINE), (
            "as LLVM multiplies bytes without it"
        )


def multiplying(assembly: str) -> list[str]:
    """Return the blocks without jumps that multiply: the bodies of the loops over the products."""
    blocks = re.split(r"^\S+:|^\t(?:b|b\.\w+|cbn?z|tbn?z)\t", assembly, flags=re.MULTILINE)
    return [block for block in blocks if re.search(r"\t(sdot|smmla|bfdot|bfmmla)\t", block)]


def test_sums_stay_in_registers(tmp_path: Path) -> None:
    model = conv([1, 64, 28, 28], 96, 3, np.uint8, pads=[1] * 4)
    for target in (N1, NEWER):
        (text,) = assemblies(model, tmp_path, target)
        assert multiplying(text)
        assert not any(re.search(r"\t(?:ldr|str|ldp|stp)\tq.*\[sp", block) for block in multiplying(text))


@pytest.mark.parametrize("name", ["depthwise", "depthwise, strides"])
def test_taps_of_bytes_share_loads_and_shuffles(name: str, tmp_path: Path) -> None:
    """A load of sixteen channels and two steps of shuffles are for four instructions; each was the load of a factor."""
    for target in (N1, NEWER):
        (text,) = assemblies(SMALL_GROUPS[name], tmp_path, target)
        blocks = "".join(multiplying(text))
        counts = {code: len(re.findall(rf"\t{code}\t", blocks)) for code in ("sdot", "zip[12]")}
        assert counts["sdot"] % 12 == 0
        assert 0 < counts["zip[12]"] <= 2 * counts["sdot"]
        assert not re.search(r"\t(?:ldr|str|ldp|stp)\tq.*\[sp", blocks), "four columns at once were spilled"


@pytest.mark.matrix(every=3)
@pytest.mark.parametrize("name", BFLOAT16_NETWORKS)
def test_every_product_of_bfloat16_has_the_instruction(name: str, tmp_path: Path) -> None:
    (text,) = assemblies(BFLOAT16_NETWORKS[name], tmp_path, NEWER, Precision.BFLOAT16)
    assert multiplying(text)
    assert set(re.findall(r"\t(bfdot|bfmmla)\t", text)) == {"bfdot" if name in OF_A_ROW else "bfmmla"}
    for block in multiplying(text):
        # Of the factors of a row, one narrowing is left.
        assert not re.search(r"\t(bfcvtn?2?|fmla|bif|bit|bsl)\t", block)
        assert name != "large" or not re.search(r"\t(?:ldr|str|ldp|stp)\tq.*\[sp", block), "it was spilled"


@pytest.mark.exhaustive
def test_products_of_bfloat16_round_their_factors_alone(tmp_path: Path) -> None:
    results = run_all(BFLOAT16_NETWORKS, MAX, NEWER, tmp_path, Precision.BFLOAT16)
    for name, ((ours,), (exact,)) in results.items():
        with np.load(tmp_path / "runs" / name / "inputs.npz") as inputs:
            wanted = bfloat16_networks.of_rounded_factors(BFLOAT16_NETWORKS[name], inputs["arr_0"])
        assert (ours.shape, ours.dtype) == (wanted.shape, np.float32)
        # The instruction rounds each step's sum to odd: some more than one that rounds to nearest.
        np.testing.assert_allclose(ours, wanted, rtol=2e-4, atol=2e-5 * np.abs(wanted).max(), err_msg=name)
        assert np.abs(ours - exact).max() > 1e-4 * np.abs(exact).max(), "it was computed in float32"


def test_llvm_knows_the_same_cpus_with_bfloat16() -> None:
    for name, target, has in cpus_of(TRIPLE):
        assert bfloat16_lanes(target) == (4 if "bf16" in has else 0), name


@pytest.mark.parametrize("cpu", ["neoverse-v2", "apple-m4"])
def test_llvm_takes_bfloat16_away_with_the_same_features(cpu: str) -> None:
    for feature in cpu_features(parse_target(f"llvm -mcpu={cpu} -mtriple={TRIPLE}")):
        target = parse_target(f"llvm -mcpu={cpu} -mattr=-{feature} -mtriple={TRIPLE}")
        assert bfloat16_lanes(target) == (4 if "bf16" in cpu_features(target) else 0), feature


@pytest.mark.parametrize(
    ("target", "instruction"),
    [
        (f"llvm -mcpu=cortex-a76 -mtriple={TRIPLE}", SDOT),
        (f"llvm -mcpu=cortex-a55 -mtriple={TRIPLE}", SDOT),
        (f"llvm -mcpu=cortex-a72 -mtriple={TRIPLE}", None),
        (f"llvm -mcpu=cortex-a76 -mattr=-dotprod -mtriple={TRIPLE}", None),
        (f"llvm -mcpu=generic -mattr=+dotprod -mtriple={TRIPLE}", SDOT),
        (f"llvm -mcpu=generic -mattr=+dotprod,-neon -mtriple={TRIPLE}", None),
        (f"llvm -mcpu=generic -mattr=+dotprod,+i8mm -mtriple={TRIPLE}", SMMLA),
        (f"llvm -mcpu=neoverse-v2 -mtriple={TRIPLE}", SMMLA),
        (f"llvm -mcpu=neoverse-v2 -mattr=-i8mm -mtriple={TRIPLE}", SDOT),
        (f"llvm -mcpu=generic -mattr=+i8mm -mtriple={TRIPLE}", None),  # a single row would have none
        ("llvm -mcpu=sandybridge -mtriple=x86_64-linux-gnu", None),
        ("llvm -mcpu=sandybridge -mtriple=x86_64-linux-gnu -mattr=+dotprod", None),
    ],
)
def test_instructions_by_target(target: str, instruction: ByteProducts | None) -> None:
    assert byte_products(parse_target(target)) == instruction


def test_llvm_knows_the_same_cpus() -> None:
    for name, target, has in cpus_of(TRIPLE):
        assert byte_products(target) is (SMMLA if "i8mm" in has else SDOT if "dotprod" in has else None), name


@pytest.mark.parametrize("cpu", ["neoverse-n1", "neoverse-v2", "apple-a14"])
def test_llvm_takes_the_instruction_away_with_the_same_features(cpu: str) -> None:
    whole = parse_target(f"llvm -mcpu={cpu} -mtriple={TRIPLE}")
    for feature in cpu_features(whole):
        target = parse_target(f"llvm -mcpu={cpu} -mattr=-{feature} -mtriple={TRIPLE}")
        has = cpu_features(target)
        wanted = None if "dotprod" not in has else SMMLA if "i8mm" in has else SDOT
        assert byte_products(target) is wanted, feature
