"""The judgement of loops on Arm, and what it led to: sums and their factors fit into the registers."""

from __future__ import annotations

import re
import shutil
from contextlib import nullcontext
from pathlib import Path

import pytest
from benchmarks.arm.tiles import (
    CORES,
    bound,
    convolution,
    count_fmla,
    cycles_per_fmla,
    hottest_loop,
    kernel_loop,
    models,
    rows_of,
    tile_body,
    tiles,
)
from emulated_arm import CORTEX_A72, emulated_machine, run_folders

from tunefarm_tuning.target.parse import parse_target
from tunefarm_tuning.tvm.default_schedules.stage import Machine

MCA = shutil.which("llvm-mca-19") or shutil.which("llvm-mca")
MCA_19 = shutil.which("llvm-mca-19")
AIM = 1.25


def test_the_hottest_loop_is_the_innermost_with_the_most_multiply_adds() -> None:
    small = ["\tfmla\tv0.4s, v1.4s, v2.s[0]", "\tsubs\tx1, x1, #1", "\tb.ne\t.LBB0_2"]
    large = ["\tfmla\tv0.4s, v1.4s, v2.s[0]", "\tfmla\tv3.4s, v1.4s, v2.s[0]", "\tcbnz\tx2, .LBB0_3"]
    lines = [
        ".LBB0_1:",
        ".LBB0_2:",
        *small,
        ".LBB0_3:",
        "\t.loc\t1 2",
        *large,
        "\tb\t.LBB0_1",
        "\tb\t.LBB0_4",
        ".LBB0_4:",
    ]
    assert hottest_loop("\n".join(lines)) == large
    assert hottest_loop("\tret") == []


def test_all_tiles_fit_into_the_registers() -> None:
    for rows, vectors in tiles():
        body = tile_body(rows, vectors)
        assert count_fmla(body) == rows * vectors
        used = {int(number) for number in re.findall(r"\b[vqs](\d+)", "\n".join(body))}
        assert len(used) == rows * vectors + vectors + min(rows, 2)
        assert max(used) < 32


def test_a_tile_has_no_more_rows_than_the_kernel() -> None:
    assert {name: rows_of(name) for name in ("1 x 1024 x 1000", "7x7, 3 of 224x224", "3x3, 512 of 7x7")} == {
        "1 x 1024 x 1000": 1,
        "7x7, 3 of 224x224": 112 * 112,
        "3x3, 512 of 7x7": 49,
    }
    assert {rows for rows, _ in tiles(1)} == {1}
    assert max(rows for rows, _ in tiles()) > 14


@pytest.mark.exhaustive
@pytest.mark.skipif(MCA_19 is None, reason="there is no llvm-mca-19, whose models the aim is about")
@pytest.mark.parametrize("core", CORES)
def test_default_schedules_are_near_the_best_tile(core: str) -> None:
    """All twelve kernels, as benchmarks/results/arm.md says."""
    assert MCA_19 is not None
    target = parse_target(f"llvm -mcpu={core} -mtriple=aarch64-linux-gnu")
    ratios = {
        name: cycles_per_fmla(kernel_loop(model, target), core, MCA_19) / bound(name, core, MCA_19)
        for name, model in models()
    }
    assert {name: ratio for name, ratio in ratios.items() if ratio > AIM} == {}


def test_a_core_whose_paired_loads_are_slow_has_none() -> None:
    """LLVM paired all loads of weights on a Cortex-A55; by its own model a pair takes six cycles, and two loads two."""
    body = kernel_loop(
        dict(models())["1 x 1024 x 1000"], parse_target("llvm -mcpu=cortex-a55 -mtriple=aarch64-linux-gnu")
    )
    assert count_fmla(body) >= 8
    assert not any(line.startswith("\tldp\tq") for line in body)


@pytest.mark.matrix(every=6)
@pytest.mark.parametrize("name", [name for name, _ in models()])
def test_a_kernel_moves_no_sums_between_registers(name: str) -> None:
    """Tiles of 28 sums left too few registers for factors: LLVM moved or spilled sums in each step."""
    target = parse_target("llvm -mcpu=neoverse-n1 -mtriple=aarch64-linux-gnu")
    assert Machine.of(target).registers < 32
    body = kernel_loop(dict(models())[name], target)
    assert count_fmla(body) >= 8
    moves = [line for line in body if re.match(r"\tmov\tv|\t(ldr|str|ldp|stp)\tq.*\[sp", line)]
    assert moves == []


@pytest.mark.parametrize(("channels", "size", "kernel"), [(96, 112, 3), (576, 14, 3), (96, 28, 5)])
@pytest.mark.parametrize("core", ["cortex-a72", "neoverse-n1"])
def test_taps_with_strides_fit_into_registers(core: str, channels: int, size: int, kernel: int) -> None:
    """With tiles as without strides a 5 x 5 convolution had 107 accesses of the stack for 350 multiply-adds."""
    model = convolution(channels, size, channels, kernel, 2, groups=channels)
    body = kernel_loop(model, parse_target(f"llvm -mcpu={core} -mtriple=aarch64-linux-gnu"))
    assert count_fmla(body) >= 2 * kernel**2
    assert sum("[sp" in line for line in body) <= count_fmla(body) / 20


@pytest.mark.skipif(MCA is None, reason="there is no llvm-mca")
def test_cycles_come_from_llvm() -> None:
    """Whatever its version models: a single sum waits for itself, sixteen do not."""
    assert MCA is not None
    single, sixteen = (cycles_per_fmla(tile_body(*tile), "neoverse-n1", MCA) for tile in ((1, 1), (8, 2)))
    assert 0.4 < sixteen < single / 2


HANGS = """
import sys
from pathlib import Path
for folder in sorted(Path(sys.argv[1]).iterdir()):
    if (folder / "result").exists():
        continue
    hangs = folder / "hangs"
    left = int(hangs.read_text()) if hangs.exists() else 0
    if left:
        hangs.write_text(str(left - 1))
        while True:
            pass
    (folder / "result").write_text("done")
"""


@pytest.mark.exhaustive
@pytest.mark.parametrize("hangs", [1, 3])
def test_an_emulated_machine_that_hangs_is_killed_and_goes_on_where_it_was(
    hangs: int, tmp_path: Path
) -> None:
    machine = emulated_machine(CORTEX_A72)
    (tmp_path / "run.py").write_text(HANGS)
    folders = tmp_path / "folders"
    for name in ("a", "b", "c"):
        (folders / name).mkdir(parents=True)
    (folders / "b" / "hangs").write_text(str(hangs))
    with pytest.raises(AssertionError, match="QEMU hung three times") if hangs == 3 else nullcontext():
        run_folders(machine, tmp_path / "run.py", folders, "result", timeout_sec=20.0)
    ended = {folder.name for folder in folders.iterdir() if (folder / "result").exists()}
    assert ended == ({"a"} if hangs == 3 else {"a", "b", "c"})
