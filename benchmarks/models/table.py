"""Print tables of what `benchmarks.models.run` wrote.

    python -m benchmarks.models.table out/models.jsonl [...]                     # into benchmarks/results/models.md
    python -m benchmarks.models.table out/others.jsonl                           # into benchmarks/results/models_others.md
    python -m benchmarks.models.table out/models.jsonl --output - --tasks -      # print them

Of each model and number of threads the last line counts. Results of none but `OTHERS` have pages of their own. `--tasks` gets every task and its distance to the roofline.
"""

from __future__ import annotations

import argparse
import math
from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path
from typing import Any

from benchmarks.models.distance import weighted_share
from benchmarks.models.networks import GROUPS, MEASURED, NETWORKS, OTHERS
from benchmarks.search import json_lines
from benchmarks.search.markdown import table

RESULTS = Path(__file__).parents[1] / "results"
NOT_ASKED = "not asked for"
NOTE = (
    "Milliseconds an inference, medians of samples taken in turns, each contender in a process of its own; inputs and outputs lie where "
    "the runtime wants them. `tuned` is the artifact through its own loader; `ONNX Runtime` has all graph optimisations, as many "
    "threads, I/O binding, and the faster of spinning and not. The ratio (below 1 is faster than ONNX Runtime) is the median of the "
    "rounds' ratios; `as called` is the same of calls with numpy arrays in and out. `untuned` is the same network compiled without "
    "any record, `plain` as TVM does it: loops without any schedule. `kernels` is what the records say the tuned kernels take together, each timed by itself (those without a record, `covered` says how many, are not in it); `roofline` how much of "
    "what the machine could do they reach, weighted by time. `spread` is (largest − smallest) / median, of tuned and of ONNX "
    "Runtime. `off by` is the largest difference from ONNX Runtime without graph optimisations, over the output's RMS."
)

TASKS_NOTE = (
    "`schedule` is what the artifact has: a record's kernel, or the default. A convolution whose place Winograd's algorithm takes has its "
    "default here, beside the `_winograd` products; one of these that was given up early has no time. What only moves data has "
    "no share of a peak."
)


def geomean(values: Iterable[float]) -> float | None:
    """Return the geometric mean; None of nothing."""
    known = list(values)
    return math.exp(sum(map(math.log, known)) / len(known)) if known else None


def last_lines(lines: Iterable[Mapping[str, Any]]) -> list[Mapping[str, Any]]:
    """Return the last line of each model and number of threads, in the order in which those came first."""
    last: dict[tuple[str, int], Mapping[str, Any]] = {}
    for line in lines:
        if line.get("kind") == "network":
            last[line["model"], line["threads"]] = line
    return sorted(last.values(), key=lambda line: line["threads"])


def make_table(lines: Iterable[Mapping[str, Any]]) -> str:
    """Return the models, their geometric means and the worst, by number of threads."""
    last = last_lines(lines)
    if not last:
        return "nothing is finished yet"
    parts = [_where(last), NOTE]
    for threads in dict.fromkeys(line["threads"] for line in last):
        of = [line for line in last if line["threads"] == threads]
        parts += [
            f"## {threads} thread{'s' if threads > 1 else ''}",
            table(_HEAD, [_row(line) for line in of]),
        ]
        parts.append(_summary(of))
    reasons = {
        f"{kind}: {why}" for line in last for kind, why in line["left_out"].items() if why != NOT_ASKED
    }
    if reasons:
        parts.append("Left out: " + "; ".join(sorted(reasons)) + ".")
    return "\n\n".join(parts)


def task_table(lines: Iterable[Mapping[str, Any]]) -> str:
    """Return every task, by model and number of threads, the slowest first."""
    parts = []
    for line in last_lines(lines):
        ranked = sorted(line["tasks"], key=lambda row: -row["weight"] * (row["cost_sec"] or math.inf))
        rows = [
            [
                row["name"],
                "tuned" if row["tuned"] else "default",
                str(row["weight"]),
                _ms(None if row["cost_sec"] is None else 1e3 * row["cost_sec"]),
                f"{row['flops'] / 1e6:.1f}",
                _percent(row["share_of_peak"]),
                _percent(row["share_of_roofline"]),
                {True: "memory", False: "arithmetic", None: "–"}[row["memory_bound"]],
            ]
            for row in ranked
        ]
        head = ["task", "schedule", "calls", "ms", "MFLOP", "of the peak", "of the roofline", "bound by"]
        parts.append(
            f"## {line['model']}, {line['threads']} thread(s)\n\n{_peak(line)}\n\n{table(head, rows)}"
        )
    return "\n\n".join(parts) or "nothing is finished yet"


def describe(line: Mapping[str, Any]) -> str:
    """Return a finished model in one line, for people who wait."""
    latency = line["latency_ms"]
    return (
        f"{line['model']}, {line['threads']} thread(s): {_ms(latency['artifact'])} ms, ONNX Runtime "
        f"{_ms(latency[line['onnxruntime_best']])} ms, ratio {line['ratio']:.3f}, untuned {_ms(latency.get('untuned'))} ms; "
        f"kernels {_ms(line['kernel_sum_ms'])} ms, {line['num_covered']}/{line['num_tasks']} tasks, {line['trials']} trials"
    )


_HEAD = [
    "model",
    "ONNX Runtime",
    "tuned",
    "ratio",
    "as called",
    "untuned",
    "plain",
    "torch",
    "torch.compile",
    "kernels",
    "roofline",
    "covered",
    "trials",
    "minutes",
    "spread",
    "off by",
]


def _row(line: Mapping[str, Any]) -> list[str]:
    latency, spread, best = line["latency_ms"], line["spread"], line["onnxruntime_best"]
    return [
        line["model"],
        _ms(latency[best]),
        _ms(latency["artifact"]),
        f"{line['ratio']:.3f}",
        f"{latency['artifact_call'] / latency['onnxruntime_call']:.3f}",
        *(_ms(latency.get(kind)) for kind in ("untuned", "plain", "torch", "torch_compile")),
        _ms(line["kernel_sum_ms"]),
        _percent(weighted_share(line["tasks"])),
        f"{line['num_covered']}/{line['num_tasks']}",
        str(line["trials"]),
        f"{line['tuning_sec'] / 60.0:.1f}",
        f"{_percent(spread['artifact'])}, {_percent(spread[best])}",
        f"{line['relative_difference']:.1e}",
    ]


def _summary(lines: Sequence[Mapping[str, Any]]) -> str:
    ratios = {line["model"]: line["ratio"] for line in lines}
    worst = max(ratios, key=lambda model: ratios[model])
    mean = geomean(ratios.values())
    over = [model for model, ratio in ratios.items() if ratio > 1.0]
    sentences = [
        f"Geometric mean of {len(ratios)}: **{mean:.3f}×** ONNX Runtime; worst {worst}, {ratios[worst]:.3f}×"
    ]
    sentences.append(f"; {len(over)} above 1.0 ({', '.join(over)})" if over else "; none above 1.0")
    for kind, title in (("untuned", "untuned"), ("plain", "plain TVM"), ("torch_compile", "torch.compile")):
        against = [
            line["latency_ms"]["artifact"] / line["latency_ms"][kind]
            for line in lines
            if kind in line["latency_ms"]
        ]
        if against:
            sentences.append(f"; {geomean(against):.3f}× {title} ({len(against)} models)")
    return "".join(sentences) + "."


def _where(lines: Sequence[Mapping[str, Any]]) -> str:
    machines = {
        f"{line['machine']['cpu']} ({line['machine']['device']}), {line['machine']['target']}"
        for line in lines
    }
    names = ("apache-tvm", "onnxruntime", "torch")
    used = {
        ", ".join(f"{name} {line['versions'][name]}" for name in names if name in line["versions"])
        for line in lines
    }
    commits = {line["machine"]["commit"] for line in lines}
    return f"{'; '.join(sorted(machines))}. {'; '.join(sorted(used))}. Commit {', '.join(sorted(commits))}."


def _peak(line: Mapping[str, Any]) -> str:
    peak, which = line["peak"], "one_core" if line["threads"] == 1 else "all_cores"
    flops = {dtype: rate[which] for dtype, rate in peak["flops_per_sec"].items()}
    peaks = [f"{dtype} {rate / 1e9:.0f} GFLOP/s" for dtype, rate in flops.items()]
    peaks += [
        f"{row['bytes_per_sec'][which] / 1e9:.0f} GB/s over {row['working_set_bytes'] / 2**20:.3g} MiB"
        for row in peak["bandwidth"]
    ]
    return f"Peak, measured in the run: {', '.join(peaks) or peak['missing']}."


def _ms(value: float | None) -> str:
    return "–" if value is None else f"{value:.4g}"


def _percent(share: float | None) -> str:
    return "–" if share is None else f"{100 * share:.0f} %"


def main(arguments: Sequence[str] | None = None) -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("lines", type=Path, nargs="+", help="what `run` wrote")
    parser.add_argument(
        "--output", help="file, or - to print; results/models.md, or models_others.md, if left out"
    )
    parser.add_argument(
        "--tasks",
        help="file of all tasks, or - to print, or nothing ('') for none; models_tasks.md or models_others_tasks.md if left out",
    )
    options = parser.parse_args(arguments)
    lines = [line for path in options.lines for line in json_lines.load(path)]
    models = {line["model"] for line in last_lines(lines)}
    if models and models <= set(OTHERS):
        kind, page, named = "others", "models_others", "other whole networks"
    else:
        kind, page, named = "models", "models", "whole networks"
    head = f"`{_command(lines, kind)}`, then `python -m benchmarks.models.table out/{kind}.jsonl`."
    output = str(RESULTS / f"{page}.md") if options.output is None else options.output
    tasks = str(RESULTS / f"{page}_tasks.md") if options.tasks is None else options.tasks
    _write(output, f"# {named.capitalize()}\n\n{head}\n\n{make_table(lines)}\n")
    if tasks:
        _write(tasks, f"# Every task of the {named}\n\n{head}\n\n{TASKS_NOTE}\n\n{task_table(lines)}\n")


def _command(lines: Iterable[Mapping[str, Any]], kind: str) -> str:
    last = last_lines(lines)
    minutes = max((line["minutes"] for line in last), default=20)
    threads = " ".join(map(str, sorted({line["threads"] for line in last})))
    command = f"python -m benchmarks.models.run --output out/{kind}.jsonl"
    untuned = " --no-untuned" if any(NOT_ASKED in line["left_out"].values() for line in last) else ""
    return f"{command}{_models_asked_for(last)} --minutes {minutes:g} --threads {threads}{untuned}"


def _models_asked_for(lines: Iterable[Mapping[str, Any]]) -> str:
    """Return the option that asks for the models of these lines; nothing where they are those of the default."""
    left = dict.fromkeys(line["model"] for line in lines)
    if not left or set(left) == set(MEASURED):
        return ""
    words = []
    for word, names in GROUPS.items():
        if left.keys() >= set(names):
            words.append(word)
            left = {name: None for name in left if name not in names}
    # A file is known by its stem.
    words += [name if name in NETWORKS else f"{name}.onnx" for name in left]
    return f" --models {' '.join(words)}"


def _write(where: str, text: str) -> None:
    if where == "-":
        print(text)
    else:
        Path(where).write_text(text, encoding="utf-8")


if __name__ == "__main__":
    main()
