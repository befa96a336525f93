"""Instructions that only some CPUs have run before a device is lent; a system that promises too much is found out."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest
import tvm
from benchmarks.arm.corpus import rpc_server
from emulated_arm import CORTEX_A72, MAX, ArmCpu, emulated_machine

from tunefarm_tuning.core.errors import DeviceLostError
from tunefarm_tuning.measure.calibration import calibrate
from tunefarm_tuning.target.parse import detect_host_target, parse_target
from tunefarm_tuning.testing.local_rpc import local_rpc
from tunefarm_tuning.tvm.base.target import tvm_target
from tunefarm_tuning.tvm.device.instruction_probes import InstructionProbe, instruction_probes

ARM = "-mtriple=aarch64-linux-gnu -num-cores=1"
EVERYTHING = f"llvm -mcpu=generic -mattr=+bf16,+dotprod,+fullfp16,+i8mm {ARM}"


def built(probe: InstructionProbe, target: str) -> tvm.runtime.Module:
    module = tvm.IRModule({probe.name: probe.func})
    return tvm.tirx.build(module, target=tvm_target(parse_target(target)))


@pytest.mark.matrix(every=2, each_value=False)
@pytest.mark.parametrize(
    ("target", "instructions"),
    [
        (f"llvm -mcpu=cortex-a72 {ARM}", {}),
        (f"llvm -mcpu=cortex-a76 {ARM}", {"dotprod": "sdot", "fullfp16": "fmul\tv"}),
        (EVERYTHING, {"dotprod": "sdot", "i8mm": "smmla", "bf16": "bfdot", "fullfp16": "fmul\tv"}),
        ("llvm -mcpu=znver3", {"avx2": "vpmaddwd"}),
        ("llvm -mcpu=alderlake", {"avxvnni": "vpdpbusd"}),
        ("llvm -mcpu=skylake-avx512", {"avx512bw": "vpmaddwd"}),
        ("llvm -mcpu=znver5", {"avx512vnni": "vpdpbusd", "avx512bf16": "vdpbf16ps"}),
        ("cuda/sm_90", {}),
    ],
)
def test_each_feature_that_kernels_are_made_for_has_its_instruction_tried(
    target: str, instructions: dict[str, str]
) -> None:
    probes = {probe.feature: probe for probe in instruction_probes(parse_target(target))}
    assert probes.keys() == instructions.keys()
    for feature, probe in probes.items():
        assert instructions[feature] in str(built(probe, target).inspect_source("asm"))


def test_this_machine_computes_what_is_expected() -> None:
    host = detect_host_target()
    for probe in instruction_probes(host):
        arrays = [
            tvm.runtime.tensor(array) for array in (probe.left, probe.right, np.zeros_like(probe.expected))
        ]
        built(probe, host.key)[probe.name](*arrays)
        np.testing.assert_array_equal(arrays[2].numpy(), probe.expected)


@pytest.mark.exhaustive
@pytest.mark.parametrize(
    ("cpu", "target", "missing"),
    [
        (MAX, EVERYTHING, None),
        (CORTEX_A72, f"llvm -mcpu=cortex-a76 {ARM}", "dotprod"),
        (CORTEX_A72, f"llvm -mcpu=cortex-a76 -mattr=-dotprod {ARM}", "fullfp16"),
        (CORTEX_A72, f"llvm -mcpu=cortex-a76 -mattr=-dotprod,-fullfp16 {ARM}", None),
    ],
)
def test_a_board_whose_system_promises_what_its_cpu_lacks_is_refused(
    cpu: ArmCpu, target: str, missing: str | None, tmp_path: Path
) -> None:
    """A float network would run there; one of bytes would crash in each kernel."""
    server = rpc_server(emulated_machine(cpu), tmp_path)
    with local_rpc(server_command=server, ready_timeout_sec=600.0) as rpc:
        if missing is None:
            assert calibrate(rpc.device, parse_target(target)).wrong is None
            return
        promised = f"stopped at an instruction of {missing}, which its target promises"
        with pytest.raises(DeviceLostError, match=promised) as refused:
            calibrate(rpc.device, parse_target(target))
        assert f"-mattr=-{missing}" in refused.value.message
