"""Target names, parsed."""

from __future__ import annotations

import json

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tunefarm_tuning.core.errors import UnknownTargetError
from tunefarm_tuning.target import parse
from tunefarm_tuning.target.gpu import gpu_target, limits_of
from tunefarm_tuning.target.parse import is_for_this_cpu, parse_target
from tunefarm_tuning.target.target import Target

JETSON = parse_target("nvidia/jetson-orin-nano")


@pytest.mark.parametrize(
    ("text", "key"),
    [
        ("llvm", "llvm"),
        ("llvm -mcpu=znver4 -num-cores=8", "llvm -mcpu=znver4 -num-cores=8"),
        ("llvm --num-cores 8 -mcpu znver4", "llvm -mcpu=znver4 -num-cores=8"),
        ("llvm/znver4", "llvm -mcpu=znver4"),
        ("  llvm -mattr=+avx2,-fma ", "llvm -mattr=+avx2,-fma"),
        (
            '{"kind": "llvm", "mcpu": "skylake-avx512", "num-cores": 4}',
            "llvm -mcpu=skylake-avx512 -num-cores=4",
        ),
        (
            "raspberry-pi/4b-aarch64",
            "llvm -mattr=+neon -mcpu=cortex-a72 -mtriple=aarch64-linux-gnu -num-cores=4",
        ),
        (
            "cuda/sm_90",
            (
                "cuda -arch=sm_90 -max_shared_memory_per_block=49152 -max_threads_per_block=1024 -registers_per_block=65536"
                " -thread_warp_size=32"
            ),
        ),
    ],
)
def test_reads_what_people_say(text: str, key: str) -> None:
    assert parse_target(text).key == key


@pytest.mark.parametrize(
    "text", ["llvm -mcpu=znver4 -num-cores=2", "cuda/sm_90", "nvidia/nvidia-h100", "nvidia/jetson-orin-nano"]
)
def test_keys_and_json_read_back(text: str) -> None:
    target = parse_target(text)
    assert parse_target(target.key) == target
    assert parse_target(json.dumps(target.to_json())) == target
    assert parse_target(target.to_json()) == target
    assert parse_target(target) is target


def test_only_this_cpus_code_runs_here() -> None:
    host = parse_target("host")
    assert is_for_this_cpu(host)
    assert is_for_this_cpu(parse_target({**host.to_json(), "num-cores": 64}))
    assert not is_for_this_cpu(parse_target("llvm -mcpu=cortex-a72"))
    assert not is_for_this_cpu(parse_target("llvm -mtriple=aarch64-linux-gnu"))
    assert not is_for_this_cpu(parse_target("cuda/sm_90"))


def test_kernels_are_tuned_for_a_target_whatever_libraries_it_has() -> None:
    target = parse_target("llvm -mcpu=znver4 -libs=dnnl")
    assert target.libraries == ("dnnl",)
    assert target.without_libraries() == parse_target("llvm -mcpu=znver4")
    assert parse_target(target.key) == target


def test_a_gpu_can_bring_its_host() -> None:
    host = JETSON.get("host")
    assert isinstance(host, Target)
    assert host.get("mcpu") == "carmel"
    assert JETSON.to_json()["host"]["kind"] == "llvm"


def test_cuda_says_what_schedules_need() -> None:
    # Without a GPU at hand TVM does not know it, and the design spaces would differ from machine to machine.
    assert parse_target("cuda -arch=sm_86").get("max_threads_per_block") == 1024
    assert parse_target("cuda -arch=sm_86 -max_threads_per_block=512").get("max_threads_per_block") == 512


@pytest.mark.parametrize(
    ("text", "nearest"),
    [
        ("geforce-gt-730m", "nvidia/geforce-gt-730m"),
        ("titan-xp", "nvidia/nvidia-titan-xp"),
        ("znver4", "llvm -mcpu=znver4"),
        ("raspberry-pi", "raspberry-pi/4b-aarch64"),
        ("hots", "host"),
        ("lvm", "llvm"),
        ("zen4", "llvm -mcpu=znver4"),
    ],
)
def test_an_unknown_target_lists_the_nearest(text: str, nearest: str) -> None:
    with pytest.raises(UnknownTargetError) as caught:
        parse_target(text)
    assert caught.value.code == "unknown-target"
    assert nearest in caught.value.fields["nearest"]
    assert nearest in caught.value.message


@pytest.mark.parametrize("text", ["potato", "llvm -mcpu=potato"])
def test_nothing_is_suggested_for_a_word_that_resembles_no_target(text: str) -> None:
    with pytest.raises(UnknownTargetError) as caught:
        parse_target(text)
    assert caught.value.fields["nearest"] == []
    assert "did you mean" not in caught.value.message


@pytest.mark.parametrize(
    ("text", "arch", "l2_mib"),
    [
        ("h200", "sm_90", 50),
        ("nvidia/nvidia-h200", "sm_90", 50),
        ("NVIDIA A100-SXM4-80GB", "sm_80", 40),
        ("nvidia-h100", "sm_90", 50),
        ("RTX 5090", "sm_120", 96),
        ("NVIDIA GeForce RTX 4070 Ti SUPER", "sm_89", None),
        ("NVIDIA RTX 6000 Ada Generation", "sm_89", None),
        ("NVIDIA GeForce RTX 3080 Laptop GPU", "sm_86", None),
    ],
)
def test_gpus_without_a_tag_are_described(text: str, arch: str, l2_mib: int | None) -> None:
    target = parse_target(text)
    assert (target.kind, target.get("arch")) == ("cuda", arch)
    assert target.get("l2_cache_size_bytes") == (None if l2_mib is None else l2_mib << 20)
    assert target.get("thread_warp_size") == 32


@pytest.mark.parametrize("text", ["nvidia/nvidia-x9000", "RTX 9090", "a9000"])
def test_a_gpu_that_nobody_knows_is_asked_for_its_architecture(text: str) -> None:
    with pytest.raises(UnknownTargetError, match=r"cuda/sm_NN.*known GPUs are.*h200") as caught:
        parse_target(text)
    assert caught.value.code == "unknown-target"


def test_what_a_driver_tells_of_a_gpu_goes_before_what_its_name_does() -> None:
    target = gpu_target("sm_90", name="NVIDIA GH200 480GB", machine="aarch64")
    assert target.get("l2_cache_size_bytes") == 50 << 20
    assert target.get("host") == Target(kind="llvm", attributes=(("mtriple", "aarch64-linux-gnu"),))
    described = gpu_target(
        "sm_90", name="h200", attributes={"l2_cache_size_bytes": 1 << 20}, machine="x86_64"
    )
    assert (described.get("l2_cache_size_bytes"), described.get("host")) == (1 << 20, None)
    assert gpu_target("sm_90") == parse_target("cuda/sm_90")
    assert parse_target(target.key) == target


@pytest.mark.parametrize(
    ("arch", "optin_kib"), [("sm_70", 96), ("sm_75", 64), ("sm_80", 163), ("sm_89", 99), ("sm_90a", 227)]
)
def test_architectures_have_the_limits_that_nvidia_publishes(arch: str, optin_kib: int) -> None:
    assert limits_of(arch).shared_optin_bytes == optin_kib << 10
    assert limits_of("sm_999").shared_optin_bytes == 48 << 10  # any has that


@pytest.mark.parametrize(
    ("text", "words"),
    [
        ("", "required"),
        ("x" * 5000, "required"),
        ("llvm -mcpu=znver", "znver4"),
        ("llvm -mtriple=aarch64-linux-gnu -mcpu=znver4", "for aarch64"),
        ("llvm -mcpus=znver4", "-mcpu?"),
        ("llvm -mcpu", "no value"),
        ("llvm znver4", "not an option"),
        ("llvm -num-cores=0", "above zero"),
        ("llvm -num-cores=many", "whole number"),
        ("llvm -fast-math=perhaps", "true or false"),
        ("llvm 'unclosed", "split"),
        (
            "llvm -libs=mkl,dnnl",
            "names mkl, which tunefarm cannot use: the libraries of llvm targets are dnnl",
        ),
        ("cuda -arch=sm_90 -libs=cudnn", "cuda targets use none"),
        ("llvm -cl-opt=-info-output-file:string=/tmp/x", "-cl-opt passes options to LLVM itself"),
        ('{"kind": "cuda", "arch": "sm_90", "host": {"kind": "llvm", "cl-opt": ["-x"]}}', "-cl-opt passes"),
        ("llvm -mtriple=../../store/x", "-mtriple of a llvm target is a name of letters"),
        ("llvm -mabi='lp64; x'", "-mabi of a llvm target is a name"),
        ("llvm -num-cores=999999999", "must be at most 4096"),
        ("llvm -opt-level=9", "must be at most 3"),
        ("llvm -mfloat-abi=../x", "-mfloat-abi of a llvm target is a name"),
        ("cuda -arch=sm_90 -max_threads_per_block=999999999", "must be at most 4096"),
        ("cuda", "cuda/sm_90"),
        ("cuda/90", "cuda/sm_90"),
        ("{nonsense", "JSON"),
        ('{"mcpu": "znver4"}', "kind"),
        ("[1]", "unknown target"),
    ],
)
def test_mistakes_are_explained(text: str, words: str) -> None:
    with pytest.raises(UnknownTargetError) as caught:
        parse_target(text)
    assert words in caught.value.message


@pytest.mark.parametrize("text", ["metal", "apple/m1-gpu", '{"kind": "opencl"}', "vulkan -supports_int8=1"])
def test_kinds_that_tunefarm_cannot_tune_for_are_refused_by_name(text: str) -> None:
    with pytest.raises(UnknownTargetError) as caught:
        parse_target(text)
    assert caught.value.code == "unsupported-target"


def test_terminal_escapes_do_not_reach_the_message() -> None:
    with pytest.raises(UnknownTargetError) as caught:
        parse_target("\x1b[31mred\n")
    assert caught.value.message.isprintable()


@given(st.text(max_size=60))
def test_any_text_is_a_target_or_a_clear_error(text: str) -> None:
    if text.strip() == "host":
        return
    try:
        target = parse_target(text)
    except UnknownTargetError as error:
        message = error.message
    else:
        message = target.key
        assert parse_target(message) == target
    assert message.isprintable()


@given(st.text(max_size=30), st.text(max_size=30))
def test_any_option_reads_back(name: str, value: str) -> None:
    try:
        target = parse_target({"kind": "llvm", name: value, "model": value})
    except UnknownTargetError:
        return
    assert parse_target(target.key) == target


@pytest.mark.parametrize("kind", parse.KINDS)
def test_each_number_has_a_bound(kind: str) -> None:
    options = parse._options(kind)
    assert {name for name, expected in options.items() if expected == "int"} <= set(parse._MOST)
