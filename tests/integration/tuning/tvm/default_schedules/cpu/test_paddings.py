"""Where default schedules compute paddings: with the tiles of a depthwise convolution or a pool, before those of other convolutions."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
from scheduled_networks import AVX512, conv, kernels_of, single
from tvm import te, topi

from tunefarm_tuning.tvm.default_schedules.schedule import default_schedule


def convolution(folder: Path, *shape: int, groups: int = 1, taps: int = 3) -> Any:
    """Return the kernel of a convolution that keeps the sizes."""
    channels, dimensions = shape[1], len(shape) - 2
    if dimensions == 2:
        net = conv(shape, channels, taps, 1, groups)
    else:
        weight = (channels, channels // groups, *[taps] * dimensions)
        net = single("Conv", shape, weight, group=groups, pads=[taps // 2] * 2 * dimensions)
    (kernel,) = (kernel for kernel in kernels_of(net, folder, AVX512) if "conv" in kernel.name)
    return kernel.module["main"]


def pool(taps: int, stride: int) -> Any:
    """Return the kernel of a pool with channels last."""
    x = te.placeholder((1, 64, 64, 64), "float32", name="x")
    padding = [taps // 2] * 4
    result = topi.nn.pool2d(x, [taps] * 2, [stride] * 2, [1, 1], padding, "max", layout="NHWC")
    return te.create_prim_func([x, result], index_dtype_override="int64")


def loops_around(script: str, block: str) -> list[str]:
    """Return the loops around the first block of a name that begins so, outermost first."""
    lines = script.splitlines()
    at = next(number for number, line in enumerate(lines) if f'sblock("{block}' in line)
    loops: list[str] = []
    indent = len(lines[at]) - len(lines[at].lstrip())
    for line in reversed(lines[:at]):
        depth = len(line) - len(line.lstrip())
        if depth < indent and line.lstrip().startswith("for "):
            loops.insert(0, line.strip())
            indent = depth
    return loops


@pytest.mark.parametrize(
    ("kind", "is_inside"),
    [("depthwise", True), ("dense", False), ("pool-stride", True), ("pool-5x5", False), ("3d", False)],
)
def test_a_padding_is_computed_with_the_tiles_that_read_it_alone(
    kind: str, is_inside: bool, tmp_path: Path
) -> None:
    """Every tile of columns of a dense convolution reads all of it; rows of the other two would compute most of it several times."""
    func = {
        "depthwise": lambda: convolution(tmp_path, 1, 96, 64, 64, groups=96),
        "dense": lambda: convolution(tmp_path, 1, 64, 64, 64),
        "pool-stride": lambda: pool(3, 2),
        "pool-5x5": lambda: pool(5, 1),
        "3d": lambda: convolution(tmp_path, 1, 32, 16, 16, 16, groups=32),
    }[kind]()
    script = default_schedule(func, AVX512).script()
    reduction = "pool_max" if "pool" in kind else "group_conv" if kind != "dense" else "conv"
    (padding, *_), (tiles, *_) = (loops_around(script, block) for block in ("pad_temp", reduction))
    assert "T.parallel" in tiles
    assert (padding == tiles) is is_inside


@pytest.mark.parametrize("batch", [1, 8])
def test_rows_of_tiles_share_a_padding(batch: int, tmp_path: Path) -> None:
    """Tiles of two rows read four; alone, each would compute every row of the padding twice."""
    script = default_schedule(convolution(tmp_path, batch, 96, 64, 64, groups=96), AVX512).script()
    rows = next(loop for loop in loops_around(script, "pad_temp") if "ax0" in loop)
    count = int(rows.split("T.grid(T.int64(")[1].split(")")[0])
    assert count % 2 == 0
    assert count > 4
