"""The target of a machine, from what its kernel says about it."""

from __future__ import annotations

import pytest

from tunefarm_tuning.artifact.container import ArtifactError
from tunefarm_tuning.artifact.machine_check import KNOWN_CPU_FEATURES, check_machine_of, cpu_flags
from tunefarm_tuning.target.parse import detect_host_target, parse_target
from tunefarm_tuning.target.target import Target
from tunefarm_tuning.tvm.base.target import code_features, cpu_features
from tunefarm_tuning.tvm.children.machine import described

RASPBERRY_PI_4 = "fp asimd evtstrm crc32 cpuid"
"""Its kernel's ``Features``; LLVM's Cortex-A72 has aes and sha2."""
RK3588 = "fp asimd evtstrm aes pmull sha1 sha2 crc32 atomics fphp asimdhp cpuid asimdrdm lrcpc dcpop asimddp"
NEWER = f"{RK3588} jscvt fcma sve sve2 i8mm bf16"


def target_of(cpu: str, features: str, machine: str = "aarch64") -> Target:
    return Target.from_json(described(machine, cpu, 4, frozenset(features.split())))


def test_an_arm_machine_is_named_as_such() -> None:
    """A worker on x86 would build for x86."""
    target = target_of("cortex-a76", RK3588)
    assert target.key == "llvm -mcpu=cortex-a76 -mtriple=aarch64-linux-gnu -num-cores=4"
    assert parse_target(target.key) == target
    assert target_of("cortex-a76", RK3588, "arm64") == target
    assert target_of("sifive-u74", "", "riscv64").get("mtriple") == "riscv64-linux-gnu"
    assert target_of("cortex-a7", "neon vfpv4", "armv7l").get("mtriple") == "armv7l-linux-gnueabihf"


@pytest.mark.parametrize(
    ("cpu", "features", "attributes"),
    [
        ("cortex-a72", RASPBERRY_PI_4, ("-aes",)),
        ("cortex-a72", f"{RASPBERRY_PI_4} aes pmull sha1 sha2", None),
        ("cortex-a76", RASPBERRY_PI_4, ("-aes", "-dotprod", "-fullfp16", "-lse", "-rcpc", "-rdm")),
        ("generic", NEWER, ("+bf16", "+dotprod", "+fullfp16", "+i8mm")),
        ("cortex-a76", NEWER, ("+bf16", "+i8mm")),
        ("apple-m1", RK3588, ("+dotprod", "+fullfp16")),  # detected, but no name of a target
        ("cortex-a72", "", None),  # a system that does not say
    ],
)
def test_features_are_those_that_the_kernel_names(
    cpu: str, features: str, attributes: tuple[str, ...] | None
) -> None:
    target = target_of(cpu, features)
    assert target.get("mattr") == attributes
    assert parse_target(target.key) == target


@pytest.mark.parametrize("features", [RASPBERRY_PI_4, RK3588, NEWER])
@pytest.mark.parametrize("cpu", ["cortex-a53", "cortex-a72", "cortex-a76", "neoverse-v2", "a64fx"])
def test_artifacts_run_on_the_machine_whose_target_they_are_for(cpu: str, features: str) -> None:
    manifest = {
        "machine": None,
        "cpu_features": sorted(cpu_features(target_of(cpu, features)) & KNOWN_CPU_FEATURES.keys()),
        "target_key": "",
    }
    check_machine_of(manifest, frozenset(features.split()))
    named = Target.from_json({"kind": "llvm", "mcpu": "neoverse-v2", "mtriple": "aarch64-linux-gnu"})
    by_name = {**manifest, "cpu_features": sorted(cpu_features(named) & KNOWN_CPU_FEATURES.keys())}
    with pytest.raises(ArtifactError, match="lacks") as refused:
        check_machine_of(by_name, frozenset(RASPBERRY_PI_4.split()))
    assert refused.value.code == "wrong-machine"


def test_a_target_by_the_name_of_the_cpu_runs_on_a_board_without_its_aes() -> None:
    for name in ("raspberry-pi/4b-aarch64", "llvm -mcpu=cortex-a72 -mtriple=aarch64-linux-gnu"):
        target = parse_target(name)
        assert "aes" in cpu_features(target)
        needed = sorted(code_features(target) & KNOWN_CPU_FEATURES.keys())
        assert "neon" in needed
        check_machine_of(
            {"cpu_features": needed, "target_key": target.key}, frozenset(RASPBERRY_PI_4.split())
        )
    assert "aes" in code_features(parse_target("llvm -mcpu=skylake")), "as ever"


def test_the_target_of_an_x86_machine_has_no_triple() -> None:
    flags = "fpu sse2 ssse3 avx avx2 fma f16c bmi1 bmi2"
    assert target_of("haswell", flags, "x86_64").key == "llvm -mcpu=haswell -num-cores=4"
    assert target_of("haswell", "fpu sse2 ssse3 avx fma bmi2", "x86_64").get("mattr") == (
        "-avx2",
        "-bmi",
        "-f16c",
    )


def test_this_machine_runs_what_is_built_for_it() -> None:
    features = cpu_features(detect_host_target()) & KNOWN_CPU_FEATURES.keys()
    check_machine_of({"cpu_features": sorted(features), "target_key": ""}, cpu_flags())
