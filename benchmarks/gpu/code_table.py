"""Print what kernels' machine code asks for as a table: the lines of `code_run`."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterator, Mapping, Sequence
from math import prod
from statistics import median
from typing import Any

from tunefarm_tuning.target.gpu import limits_of
from tunefarm_tuning.target.gpu_launch import Launch, occupancy

Line = Mapping[str, Any]

_INTRO = """\
# Kernels for GPUs, by their machine code

**No GPU was seen.** The kernels of ResNet-50 and of BERT-base's encoder (batch 1) were built on a machine without one, by `nvcc` 13.0 for
each architecture. Registers and memory of a thread are what `ptxas` reports, instructions were counted in the listings of `nvdisasm`,
occupancy follows from NVIDIA's tables. This says what a GPU can launch, and what must be slow. It does not say how long a kernel takes.

```sh
python -m benchmarks.gpu.code_run --output out/gpu_code.jsonl      # again until it ends with exit code 0
python -m benchmarks.gpu.code_run --output out/gpu_code.jsonl --table
```
"""
_LEGEND = """\
A kernel that needs several launches has a row for each. *Threads*: of a block. *Shared*: memory of a block, in KiB. For each architecture: registers
of a thread; after `+`, bytes of its own memory (accumulators that are not in registers, and spills); occupancy, the share of an SM's
warps that are resident. *Tensor cores*: their instructions on sm_90 (`mma`: of a warp; `wgmma`: of four warps; `tcgen05`: of a block).
"""
_PROPOSALS = """\
The first two of a search without history (`XGBTuner`) that the scheduler takes, of every other task (sm_90) or every sixth. A kernel without tiles has no estimate.
"""


def table(lines: Sequence[Line]) -> str:
    """Return the page."""
    parts = [
        _INTRO,
        *_summary(lines),
        "",
        _warp_groups(lines),
        "",
        "## Default schedules",
        "",
        _LEGEND,
        *_kernels(lines),
    ]
    if any(line["how"] == "searched" for line in lines):
        parts += ["## Proposals of a search", "", _PROPOSALS, *_candidates(lines)]
    return "\n".join(parts)


def _summary(lines: Sequence[Line]) -> Iterator[str]:
    yield "| | Network | dtype | Architecture | Kernels | Not built | Cannot be launched | With memory of a thread | More than 256 bytes of it | Median occupancy | With tensor cores |"
    yield "|---|---|---|---|---:|---:|---:|---:|---:|---:|---:|"
    groups: dict[tuple[str, ...], list[Any]] = defaultdict(list)
    for line in lines:
        key = (line["how"], line["network"], line["dtype"], line["arch"])
        groups[key] += line["built"]
    for (how, network, dtype, arch), built in groups.items():
        kernels = [kernel["launches"] for kernel in built if kernel.get("launches")]
        launches = [launch for kernel in kernels for launch in kernel]
        own = [max(launch["stack_bytes"] for launch in kernel) for kernel in kernels]
        cells = [
            len(built),
            sum("failed" in kernel for kernel in built),
            sum(any(map(_obstacle(arch), kernel)) for kernel in kernels),
            sum(size > 0 for size in own),
            sum(size > 256 for size in own),
            f"{100 * median(_occupancy(arch, launch) for launch in launches):.0f} %" if launches else "–",
            sum(any(map(_tensor_cores, kernel)) for kernel in kernels),
        ]
        yield f"| {how} | {network} | {dtype} | {arch} | {' | '.join(map(str, cells))} |"


def _warp_groups(lines: Sequence[Line]) -> str:
    """Return how many kernels use the tensor cores' newer instructions."""
    kernels = [kernel["launches"] for line in lines for kernel in line["built"] if kernel.get("launches")]
    counts = [[launch["instructions"] for launch in kernel] for kernel in kernels]
    newer = sum(any(count.get("wgmma") or count.get("tcgen05") for count in kernel) for kernel in counts)
    return (
        f"`wgmma` (sm_90) or `tcgen05` (sm_100) is in {newer} of {len(kernels)} kernels: TVM's rules for tensor cores make `mma` of a warp, "
        "which does not reach the peak of these GPUs."
    )


def _candidates(lines: Sequence[Line]) -> Iterator[str]:
    yield (
        "| Network | dtype | Architecture | Kernel | Blocks | Threads | Shared | Registers, memory, occupancy | Results in registers, as estimated | Tensor cores |"
    )
    yield "|---|---|---|---|---:|---:|---:|---:|---:|---|"
    for line in lines:
        if line["how"] != "searched":
            continue
        head = f"| {line['network']} | {line['dtype']} | {line['arch']} | {line['kernel']} "
        for built in line["built"]:
            if "failed" in built:
                yield f"{head}| not built: {built['failed'][:80]} |"
            for launch in built.get("launches", ()):
                asked, results = launch_of(launch), built["estimate"].get("results")
                yield (
                    f"{head}| {prod(asked.blocks)} | {asked.threads_per_block} | {asked.shared_bytes / 1024:.1f} "
                    f"| {_cell(line['arch'], launch)} | {'–' if results is None else f'{results:.0f}'} "
                    f"| {_tensor_cores(launch) or '–'} |"
                )


def _kernels(lines: Sequence[Line]) -> Iterator[str]:
    defaults = [line for line in lines if line["how"] == "default"]
    archs = list(dict.fromkeys(line["arch"] for line in defaults))
    for network, dtype in dict.fromkeys((line["network"], line["dtype"]) for line in defaults):
        yield f"### {network}, {dtype}"
        yield ""
        yield f"| Kernel | Calls | Blocks | Threads | Shared | {' | '.join(archs)} | Tensor cores |"
        yield f"|---|---:|---:|---:|---:|{'---:|' * len(archs)}---|"
        by_kernel: dict[tuple[str, int], dict[str, Line]] = defaultdict(dict)
        for line in defaults:
            if (line["network"], line["dtype"]) == (network, dtype):
                by_kernel[line["kernel"], line["calls"]][line["arch"]] = line["built"][0]
        for (kernel, calls), by_arch in by_kernel.items():
            yield from _rows(f"| {kernel} | {calls:g}", by_arch, archs)
        yield ""


def _rows(head: str, by_arch: Mapping[str, Line], archs: Sequence[str]) -> Iterator[str]:
    failed = next((f"{arch}: {built['failed']}" for arch, built in by_arch.items() if "failed" in built), "")
    if failed:
        yield f"{head} | not built: {failed[:80]} |"
        return
    launches = {arch: built["launches"] for arch, built in by_arch.items()}
    shown = "sm_90" if "sm_90" in launches else next(iter(launches))
    for number, launch in enumerate(launches[shown]):
        asked = launch_of(launch)
        cells = [
            _cell(arch, launches[arch][number]) if number < len(launches.get(arch, ())) else "–"
            for arch in archs
        ]
        yield (
            f"{head} | {prod(asked.blocks)} | {asked.threads_per_block} "
            f"| {asked.shared_bytes / 1024:.1f} | {' | '.join(cells)} | {_tensor_cores(launch) or '–'} |"
        )


def _cell(arch: str, launch: Line) -> str:
    if obstacle := _obstacle(arch)(launch):
        return obstacle
    own = f" + {launch['stack_bytes']}" if launch["stack_bytes"] else ""
    return f"{launch['registers']}{own}, {100 * _occupancy(arch, launch):.0f} %"


def launch_of(launch: Line) -> Launch:
    """Return a line's launch."""
    return Launch(
        kernel=launch["kernel"],
        blocks=tuple(launch["blocks"]),
        threads=tuple(launch["threads"]),
        static_bytes=launch["static_bytes"],
        dynamic_bytes=launch["dynamic_bytes"],
    )


def _obstacle(arch: str) -> Any:
    return lambda launch: launch_of(launch).obstacle(limits_of(arch))


def _occupancy(arch: str, launch: Line) -> float:
    asked = launch_of(launch)
    return occupancy(
        limits_of(arch),
        threads=asked.threads_per_block,
        registers=launch["registers"],
        shared_bytes=asked.shared_bytes,
    )


def _tensor_cores(launch: Line) -> str:
    counts = launch["instructions"]
    return ", ".join(f"{counts[kind]} {kind}" for kind in ("mma", "wgmma", "tcgen05") if counts.get(kind))
