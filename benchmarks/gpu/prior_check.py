"""Compare the static prior of GPUs with configs that others measured: where does it rank the fastest of each convolution?

    git clone https://github.com/tlc-pack/tophub
    python -m benchmarks.gpu.prior_check tophub/tophub/cuda_v0.10.log      # results/gpu_prior.md

The file holds, for each of several hundred convolutions (float32, NCHW), the fastest config that AutoTVM once found on a GPU. Its
spaces are tiled as ours are: blocks, virtual threads, threads, and the results of a thread. Each winner is ranked among random configs of
its own space that the GPU can launch. A prior that knows nothing would rank it in the middle. The file is read, not shipped.
"""

from __future__ import annotations

import argparse
import json
import sys
from collections import defaultdict
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from math import prod
from pathlib import Path
from statistics import median
from typing import Any

import numpy as np

from tunefarm_tuning.cost_model.gpu_features import GpuFeatures
from tunefarm_tuning.cost_model.gpu_prior import StaticGpuPrior
from tunefarm_tuning.space.config import Config
from tunefarm_tuning.space.config_space import ConfigSpace, Sketch
from tunefarm_tuning.space.gpu_tiling import BlockLimits, GpuTiling, SharedTile, Tile
from tunefarm_tuning.space.knob import Knob
from tunefarm_tuning.target.gpu import STATIC_SHARED_BYTES, limits_of
from tunefarm_tuning.target.gpu_launch import registers_for

_ARCHITECTURES = {"titanx": "sm_52", "1080ti": "sm_61", "tx2": "sm_62", "v100": "sm_70", "t4": "sm_75"}
_TASK = "conv2d_nchw.cuda"
_SPACE, _REDUCTION = ("tile_f", "tile_y", "tile_x"), ("tile_rc", "tile_ry", "tile_rx")
_UNROLL = (0, 512, 1500)
_RANDOM = 512
_FEWEST = 64


@dataclass(frozen=True, slots=True)
class Winner:
    """The fastest config of a convolution on a GPU, and its space."""

    gpu: str
    space: ConfigSpace
    config: Config


@dataclass(frozen=True, slots=True)
class Rank:
    """The share of random configs that the prior puts before a winner, and whether the winner's results fit into registers."""

    gpu: str
    before: float
    in_registers: bool


def winners(log: Path) -> Iterator[Winner]:
    """Yield the convolutions of AutoTVM's log whose tiles are exact."""
    for text in log.read_text(encoding="utf-8").splitlines():
        line = json.loads(text)
        target, task, args = line["input"][:3]
        gpu = target.partition("-model=")[2].partition(" ")[0]
        if task == _TASK and gpu in _ARCHITECTURES:
            tiles = {name: value for name, _, value in line["config"]["entity"]}
            winner = _winner(gpu, args, tiles)
            if winner is not None:
                yield winner


def rank(winner: Winner) -> Rank | None:
    """Rank a winner among random configs; None if too few of them fit."""
    space, row = winner.space, winner.space.row_of(winner.config)
    assert row is not None
    others = space.sample_rows(np.random.default_rng(0), _RANDOM)
    others = others[space.fits(others)]
    if len(others) < _FEWEST:
        return None
    features = GpuFeatures(space)
    scores = StaticGpuPrior(features.names).predict(features(np.vstack([row[None], others])))
    before = (scores[1:] > scores[0]).mean() + 0.5 * (scores[1:] == scores[0]).mean()
    tiling = space.gpu[0]
    assert tiling is not None
    use = tiling.use(row[None], space.sketches[0].knobs)
    fits = bool(use.results[0] <= registers_for(tiling.device, use.threads)[0])
    return Rank(winner.gpu, float(before), fits)


def table(ranks: list[Rank]) -> str:
    """Return the page."""
    by_gpu: dict[str, list[Rank]] = defaultdict(list)
    for ranked in ranks:
        by_gpu[ranked.gpu].append(ranked)
    rows = [
        f"| {gpu} ({_ARCHITECTURES[gpu]}) | {len(group)} | {100 * median(r.before for r in group):.1f} % "
        f"| {100 * _share(group, 0.1):.0f} % | {100 * _share(group, 0.25):.0f} % | {sum(not r.in_registers for r in group)} |"
        for gpu, group in sorted(by_gpu.items())
    ]
    return "\n".join([_INTRO, *rows, "", _READING])


def _share(group: list[Rank], best: float) -> float:
    return sum(ranked.before <= best for ranked in group) / len(group)


def _winner(gpu: str, args: list[Any], tiles: Mapping[str, Any]) -> Winner | None:
    (_, channels, height, width), (filters, _, window_y, window_x) = args[0][1], args[1][1]
    (stride_y, stride_x), padding = args[2], args[3]
    top, left, bottom, right = padding if len(padding) == 4 else (*padding, *padding)
    extents = {
        "tile_f": filters,
        "tile_y": (height + top + bottom - window_y) // stride_y + 1,
        "tile_x": (width + left + right - window_x) // stride_x + 1,
        "tile_rc": channels,
        "tile_ry": window_y,
        "tile_rx": window_x,
    }
    decisions = [_tile(tiles[name], extents[name]) for name in (*_SPACE, *_REDUCTION)]
    if any(prod(tile) != extent for tile, extent in zip(decisions, extents.values(), strict=True)):
        return None
    knobs = [
        Knob.tile(name, extents[name], len(tiles[name]), extents[name]) for name in (*_SPACE, *_REDUCTION)
    ]
    unroll = tiles["auto_unroll_max_step"]
    tiling = _tiling(gpu, stride_y, stride_x)
    space = ConfigSpace([Sketch((*knobs, Knob.categorical("unroll", _UNROLL)))], None, [tiling])
    config = Config(0, (*decisions, _UNROLL.index(unroll) if unroll in _UNROLL else 0))
    return None if space.row_of(config) is None else Winner(gpu, space, config)


def _tile(factors: list[int], extent: int) -> tuple[int, ...]:
    """Return a tile with its outermost factor, which newer logs leave open (-1)."""
    inner = factors[1:]
    return (extent // prod(inner) if factors[0] < 0 else factors[0], *inner)


def _tiling(gpu: str, stride_y: int, stride_x: int) -> GpuTiling:
    f, y, x, rc, ry, rx = range(6)
    image = (((rc, 1),), ((y, stride_y), (ry, 1)), ((x, stride_x), (rx, 1)))
    weights = (((f, 1),), ((rc, 1),), ((ry, 1),), ((rx, 1),))
    device = limits_of(_ARCHITECTURES[gpu])
    return GpuTiling(
        tiles=tuple(Tile(column=number + 1, reduces=number >= len(_SPACE)) for number in range(6)),
        shared=tuple(SharedTile(itemsize_bytes=4, dims=dims) for dims in (image, weights)),
        block_levels=1,
        vthreads=True,
        lanes=1,
        tensor_cores=0,
        fetch_columns=(),
        unroll_column=7,
        accumulator_bytes=4,
        limits=BlockLimits(
            max_threads=device.threads_per_block,
            min_threads=1,
            max_vthreads=8,
            max_shared_bytes=STATIC_SHARED_BYTES,
            max_static_bytes=STATIC_SHARED_BYTES,
        ),
        device=device,
    )


_INTRO = """\
# The static prior of GPUs

**No GPU was seen**, and nothing here is a measurement of ours. The prior (`tunefarm_tuning/cost_model/gpu_prior.py`) is a formula. It is judged by
the fastest configs that AutoTVM once found on GPUs, as TopHub publishes them (`cuda_v0.10.log`, direct convolutions in float32): each is ranked
among random configs of its own space that its GPU can launch.

```sh
python -m benchmarks.gpu.prior_check tophub/tophub/cuda_v0.10.log
```

| GPU | Convolutions | Random configs before the winner, median | Winners in the best tenth | Winners in the best quarter | Winners with more results than registers |
|---|---:|---:|---:|---:|---:|"""
_READING = """\
- A prior that knows nothing has 50 %, 10 % and 25 %.
- Its form (arithmetic and reads add up, latencies count by a square root) was chosen among 48 after looking at these same winners, so the figures flatter it.
  With each of the 48, the median winner of Titan X and 1080 Ti was in the best 5.3 %.
- Tegra X2 has two SMs. The prior expects some 80, so that it wants far more blocks than that GPU can use: on such a GPU it is hardly better than nothing
  until the cost model has measurements.
- The last column is about another rule: configs whose results exceed a thread's registers are not proposed (`space/gpu_tiling.py`). No winner breaks it.
- A winner says what is fast, not how much slower the others are. There is no such reference for tensor cores, nor for anything newer than sm_70."""


def main(arguments: list[str] | None = None) -> int:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("log", type=Path, help="AutoTVM's log")
    ranks = [ranked for winner in winners(parser.parse_args(arguments).log) if (ranked := rank(winner))]
    print(table(ranks))
    return 0


if __name__ == "__main__":
    sys.exit(main())
