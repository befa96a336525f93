"""Target names that people say."""

from __future__ import annotations

import json

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tunefarm_tuning.errors import UnknownTargetError
from tunefarm_tuning.target import Target
from tunefarm_tuning.targets import parse_target

JETSON = parse_target("nvidia/jetson-orin-nano")


@pytest.mark.parametrize(
    ("said", "key"),
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
            "cuda -arch=sm_90 -max_shared_memory_per_block=49152 -max_threads_per_block=1024 -registers_per_block=65536",
        ),
    ],
)
def test_reads_what_people_say(said: str, key: str) -> None:
    assert parse_target(said).key == key


@pytest.mark.parametrize(
    "said", ["llvm -mcpu=znver4 -num-cores=2", "cuda/sm_90", "nvidia/nvidia-h100", "nvidia/jetson-orin-nano"]
)
def test_keys_and_json_read_back(said: str) -> None:
    target = parse_target(said)
    assert parse_target(target.key) == target
    assert parse_target(json.dumps(target.to_json())) == target
    assert parse_target(target.to_json()) == target
    assert parse_target(target) is target


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
    ("said", "nearest"),
    [
        ("h100", "nvidia/nvidia-h100"),
        ("nvidia-h100", "nvidia/nvidia-h100"),
        ("geforce-rtx-4090", "nvidia/geforce-rtx-4090"),
        ("znver4", "llvm -mcpu=znver4"),
        ("raspberry-pi", "raspberry-pi/4b-aarch64"),
        ("hots", "host"),
        ("lvm", "llvm"),
    ],
)
def test_an_unknown_target_lists_the_nearest(said: str, nearest: str) -> None:
    with pytest.raises(UnknownTargetError) as caught:
        parse_target(said)
    assert caught.value.code == "unknown-target"
    assert nearest in caught.value.fields["nearest"]
    assert nearest in caught.value.message


@pytest.mark.parametrize(
    ("said", "words"),
    [
        ("", "needed"),
        ("x" * 5000, "needed"),
        ("llvm -mcpu=znver", "znver4"),
        ("llvm -mtriple=aarch64-linux-gnu -mcpu=znver4", "for aarch64"),
        ("llvm -mcpus=znver4", "-mcpu?"),
        ("llvm -mcpu", "no value"),
        ("llvm znver4", "not an option"),
        ("llvm -num-cores=0", "above zero"),
        ("llvm -num-cores=many", "whole number"),
        ("llvm -fast-math=perhaps", "true or false"),
        ("llvm 'unclosed", "split"),
        ("cuda", "cuda/sm_90"),
        ("cuda/90", "cuda/sm_90"),
        ("{nonsense", "JSON"),
        ('{"mcpu": "znver4"}', "kind"),
        ("[1]", "unknown target"),
    ],
)
def test_mistakes_are_explained(said: str, words: str) -> None:
    with pytest.raises(UnknownTargetError) as caught:
        parse_target(said)
    assert words in caught.value.message


@pytest.mark.parametrize("said", ["metal", "apple/m1-gpu", '{"kind": "opencl"}', "vulkan -supports_int8=1"])
def test_kinds_that_tunefarm_cannot_tune_for_are_refused_by_name(said: str) -> None:
    with pytest.raises(UnknownTargetError) as caught:
        parse_target(said)
    assert caught.value.code == "unsupported-target"


def test_terminal_escapes_do_not_reach_the_message() -> None:
    with pytest.raises(UnknownTargetError) as caught:
        parse_target("\x1b[31mred\n")
    assert caught.value.message.isprintable()


@given(st.text(max_size=60))
def test_any_text_is_a_target_or_a_clear_error(said: str) -> None:
    if said.strip() == "host":
        return
    try:
        target = parse_target(said)
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
