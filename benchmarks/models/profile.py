"""Show where the time of a compiled network goes: each kernel within the network, and by itself.

    python -m benchmarks.models.profile out/resnet18-t1.tunefarm
    python -m benchmarks.models.profile resnet18 --records out/records/resnet18-t1.jsonl --threads 1

The first profiles an artifact. The second builds the network from records, unchecked: of one of `benchmarks.models.networks`,
or an ONNX file; without records all of it is untuned.

`network ms` is a call within the network, `alone ms` the same code by itself on the same arguments, many calls in a row,
`cold ms` with all but the first argument (the weights, that is) out of the caches, and `record ms` what its record says. A kernel
that is slower within the network than alone finds its data cold; one that is slower alone than on record was timed on
another day, or flattered. What the virtual machine does itself is `vm.builtin`.
"""

from __future__ import annotations

import argparse
import json
import os
import tempfile
import zipfile
from collections.abc import Mapping, Sequence
from dataclasses import asdict
from pathlib import Path
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from benchmarks.models.kernel_records import KernelState
    from benchmarks.models.vm_profile import NetworkProfile

SUFFIX = ".tunefarm"


def main(arguments: Sequence[str] | None = None) -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("what", help=f"a {SUFFIX} file, a network's name, or an ONNX file")
    parser.add_argument(
        "--records", type=Path, nargs="+", default=[], help="files, or folders of them; for a model"
    )
    parser.add_argument("--threads", type=int, default=1)
    parser.add_argument("--inferences", type=int, default=20)
    parser.add_argument("--no-alone", action="store_true", help="do not time the kernels by themselves")
    parser.add_argument("--calls", action="store_true", help="list every call, in order, as well")
    parser.add_argument("--json", type=Path, help="write everything to a file too")
    options = parser.parse_args(arguments)
    os.environ["TVM_NUM_THREADS"] = str(options.threads)  # before TVM is imported
    profile, states = measure(options)
    print(f"{options.what}, {options.threads} thread(s)\n")
    print(make_table(profile, states))
    if options.calls:
        print("\n" + call_table(profile))
    if options.json:
        kernels = {name: asdict(state) for name, state in states.items()}
        options.json.write_text(
            json.dumps({"profile": asdict(profile), "kernels": kernels}), encoding="utf-8"
        )


def measure(options: argparse.Namespace) -> tuple[NetworkProfile, dict[str, KernelState]]:
    """Profile the network of the options; return the profile and the states of its kernels."""
    from benchmarks.models import kernel_records
    from benchmarks.models.networks import network_file
    from benchmarks.models.vm_profile import profile_library
    from benchmarks.search.machine import cores_target

    from tunefarm_tuning import TensorSpec, import_model
    from tunefarm_tuning.artifact.loader import extract_library
    from tunefarm_tuning.reference.random_inputs import InputKind, random_inputs

    with tempfile.TemporaryDirectory(prefix="tunefarm-bench-") as name:
        folder = Path(name)
        library = folder / "lib.so"
        if options.what.endswith(SUFFIX):
            manifest = extract_library(options.what, library)
            with zipfile.ZipFile(options.what) as archive:
                report = json.loads(archive.read("report.json"))
            states = kernel_records.states_of_artifact(manifest, report)
            specs = [TensorSpec.from_json(spec) for spec in manifest["inputs"]]
        else:
            model = import_model(network_file(options.what, folder))
            records = kernel_records.read_records(options.records)
            states = kernel_records.build_from_records(model, cores_target(options.threads), records, library)
            specs = list(model.inputs)
        inputs = random_inputs(specs, seed=0, kind=InputKind.NORMAL)
        profile = profile_library(library, inputs, inferences=options.inferences, alone=not options.no_alone)
    return profile, states


def make_table(profile: NetworkProfile, states: Mapping[str, KernelState]) -> str:
    """Return a table of the kernels, by their time within the network, with sums."""
    from benchmarks.search.markdown import table

    total_sec = sum(kernel.total_sec for kernel in profile.kernels)
    rows = []
    for kernel in profile.kernels:
        state = states.get(kernel.name)
        record_sec = state.cost_sec if state else None
        slower = kernel.network_sec / kernel.alone_sec if kernel.alone_sec else None
        rows.append(
            [
                kernel.name,
                str(kernel.calls),
                _ms(kernel.network_sec),
                f"{100 * kernel.total_sec / total_sec:.1f} %",
                _ms(kernel.alone_sec),
                _ms(kernel.cold_sec),
                _ms(record_sec),
                f"{slower:.2f}" if slower else "–",
                _kind(state),
                " ".join("×".join(map(str, shape)) or "()" for shape in kernel.shapes),
            ]
        )
    head = [
        "kernel",
        "calls",
        "network ms",
        "share",
        "alone ms",
        "cold ms",
        "record ms",
        "network/alone",
        "is",
    ]
    alone, cold = _ms(_sum(profile, "alone_sec")), _ms(_sum(profile, "cold_sec"))
    tuned, recorded = _ms(_tuned(profile, states)), _ms(_recorded(profile, states))
    sums = [
        f"one inference {_ms(profile.latency_sec)} ms; while watched {_ms(profile.watched_sec)} ms",
        f"kernels in the network {_ms(total_sec)} ms; the same alone {alone} ms, with cold weights {cold} ms",
        f"tuned kernels {tuned} ms in the network, {recorded} ms by their records",
        f"vm.builtin {_ms(sum(profile.built_in_sec.values()))} ms",
    ]
    return table([*head, "arguments"], rows) + "\n\n" + "\n".join(f"- {line}" for line in sums)


def call_table(profile: NetworkProfile) -> str:
    """Return every call in order."""
    from benchmarks.search.markdown import table

    rows = [
        [
            str(at),
            call.name,
            _ms(call.network_sec),
            " ".join("×".join(map(str, shape)) for shape in call.shapes),
        ]
        for at, call in enumerate(profile.calls)
    ]
    return table(["", "kernel", "network ms", "arguments"], rows)


def _kind(state: KernelState | None) -> str:
    if state is None:
        return "?"
    if not state.tunable:
        return "not tunable"
    return "tuned" if state.cost_sec is not None else f"untuned: {state.why_untuned}"


def _sum(profile: NetworkProfile, which: str) -> float | None:
    seconds = [(kernel.calls, getattr(kernel, which)) for kernel in profile.kernels]
    return None if any(sec is None for _, sec in seconds) else sum(calls * sec for calls, sec in seconds)


def _tuned(profile: NetworkProfile, states: Mapping[str, KernelState]) -> float:
    return sum(kernel.total_sec for kernel in profile.kernels if _cost(states, kernel.name) is not None)


def _recorded(profile: NetworkProfile, states: Mapping[str, KernelState]) -> float:
    return sum(kernel.calls * (_cost(states, kernel.name) or 0.0) for kernel in profile.kernels)


def _cost(states: Mapping[str, KernelState], name: str) -> float | None:
    return states[name].cost_sec if name in states else None


def _ms(seconds: float | None) -> str:
    return "–" if seconds is None else f"{1e3 * seconds:.4g}"


if __name__ == "__main__":
    main()
