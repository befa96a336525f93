"""Time networks of the corpus, and those of `benchmarks.models`, beside every runtime that a user could pick.

    python -m benchmarks.contest.run --output out/contest.jsonl --threads 1 2                  # untuned
    python -m benchmarks.contest.run --output out/contest.jsonl --threads 1 2 --minutes 0 1 10 # and after minutes of search
    python -m benchmarks.contest.run --output out/contest.jsonl --networks mediapipe silero-vad resnet18
    python -m benchmarks.contest.table out/contest.jsonl                                       # results/contest.md, a picture

The runtimes are those that jobs can time artifacts beside, an extra: `uv sync --all-extras`. Each has a process of its own; they are timed in
turns, in float32, and OpenVINO once more as it comes (bfloat16 where the CPU has it); `--bfloat16` adds an untuned artifact that computes in
bfloat16, too. PyTorch takes part if it is installed with
`onnx2torch`, in architectures that were exported from it. A line is written when a network is finished for a number of threads and
minutes, and what is finished is not run again, unless other work ran beside it. Records are kept, so that ten minutes go on from one.
"""

from __future__ import annotations

import argparse
import math
import sys
import tempfile
import time
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from benchmarks.corpus.exporting import ExportRefusedError, exported_file
from benchmarks.corpus.listing import Network, read_corpus, select
from benchmarks.corpus.run import CACHE
from benchmarks.corpus.way import constant_array
from benchmarks.corpus.wheels import UnavailableError, network_file
from benchmarks.models import networks as own_networks
from benchmarks.models.facts import machine, package_versions
from benchmarks.models.run import result_of
from benchmarks.models.timing import TORCH, Timing, time_network, torch_files
from benchmarks.models.tuned import TunedNetwork
from benchmarks.search import json_lines
from benchmarks.search.machine import cores_target

from tunefarm_tuning import History, compile, import_model, import_tflite  # noqa: A004
from tunefarm_tuning.core.errors import TunefarmError
from tunefarm_tuning.measure.baselines.runtimes import KINDS, is_installed, why_refused
from tunefarm_tuning.workload.model import Model
from tunefarm_tuning.workload.precision import Precision

BFLOAT16 = "artifact_bfloat16"
"""The contender that is the artifact compiled with ``precision=bfloat16``."""
NOT_INSTALLED = "not installed"


@dataclass(frozen=True, slots=True, kw_only=True)
class Entrant:
    """A network that takes part.

    Attributes:
        name: In the results.
        network: Of the corpus; None for one of `benchmarks.models`.
    """

    name: str
    network: Network | None = None

    def file(self, folder: Path, options: argparse.Namespace) -> Path:
        """Return the network's file.

        Raises:
            UnavailableError, ExportRefusedError: As the corpus.
        """
        if self.network is None:
            return own_networks.network_file(self.name, folder)
        if self.network.is_architecture:
            return exported_file(self.network, options.cache, options.torch_python)
        return network_file(self.network, options.cache, download=not options.offline)

    def model(self, file: Path) -> Model:
        """Import the file with the shapes and values of the corpus."""
        if self.network is None or self.network.is_architecture:
            return import_model(file)
        return import_model(file, shapes=dict(self.network.shapes), values=dict(self.network.values))


def entrants(names: Sequence[str]) -> list[Entrant]:
    """Return the named networks; without names the eight of `benchmarks.models`, then the corpus.

    Raises:
        ValueError: If there is no such network or package.
    """
    own = [name for name in own_networks.MEASURED if not names or name in names]
    rest = [name for name in names if name not in own]
    corpus = select(read_corpus(), rest) if rest or not names else ()
    return [
        *(Entrant(name=name) for name in own),
        *(Entrant(name=network.name, network=network) for network in corpus),
    ]


def main(arguments: Sequence[str] | None = None) -> int:
    """Run what is not finished; 0 if all was timed, 1 if not, 2 if a name is unknown."""
    options = _parser().parse_args(arguments)
    try:
        chosen = entrants(options.networks)
    except ValueError as error:
        print(error, file=sys.stderr)
        return 2
    before = [line for line in json_lines.load(options.output) if line.get("kind") == "contest"]
    finished = {key_of(line) for line in before if not is_disturbed(line)}
    timed = True
    for number, entrant in enumerate(chosen, 1):
        wanted = [
            (entrant.name, threads, minutes)
            for threads in options.threads
            for minutes in options.minutes
            if (entrant.name, threads, minutes) not in finished
        ]
        for line in _lines(entrant, [key[1:] for key in wanted], options) if wanted else ():
            json_lines.append(options.output, line)
            timed = timed and "latency_ms" in line
            print(f"{number}/{len(chosen)} {_describe(line)}", file=sys.stderr, flush=True)
    return 0 if timed else 1


def key_of(line: Mapping[str, Any]) -> tuple[str, int, float]:
    """Return what tells a line from others: network, threads, minutes."""
    return line["network"], line["threads"], line["minutes"]


def is_disturbed(line: Mapping[str, Any]) -> bool:
    """Return whether other work ran beside a network's timing: then threads that wait by turning lose, as ours and ONNX Runtime's do.

    ONNX Runtime whose threads wait so took 1.25 times as long as with threads that sleep; or calls from Python, which differ from runs by
    microseconds, took a third more or less.
    """
    latency = line.get("latency_ms", {})
    if latency.get("onnxruntime", 0.0) > 1.25 * latency.get("onnxruntime_still", math.inf):
        return True
    run, call = (latency.get(kind, 0.0) for kind in ("artifact", "artifact_call"))
    return bool(run > 0.3 and call and not run / 1.33 < call < run * 1.33)


def _lines(
    entrant: Entrant, wanted: Sequence[tuple[int, float]], options: argparse.Namespace
) -> Iterator[dict[str, Any]]:
    """Yield the line of a network for each number of threads and minutes."""
    with tempfile.TemporaryDirectory(prefix="tunefarm-contest-") as scratch:
        folder = Path(scratch)
        for threads, minutes in wanted:
            line = {"kind": "contest", "network": entrant.name, "threads": threads, "minutes": minutes}
            try:
                file = entrant.file(folder, options)
                model = entrant.model(file)
                line["operations"] = entrant.network.kind if entrant.network else "architecture"
                artifact, trials = _artifact(entrant, model, threads, minutes, folder, options)
                timing = _time(entrant, model, file, artifact, threads, folder, options)
                line |= {"trials": trials, **result_of(timing)}
            except (TunefarmError, UnavailableError, ExportRefusedError) as error:
                line |= {"refused": str(error)}
            yield line | {
                "versions": package_versions(),
                "machine": machine() | {"target": cores_target(threads).key},
                "measured_at": time.time(),
            }


def _artifact(
    entrant: Entrant, model: Model, threads: int, minutes: float, folder: Path, options: argparse.Namespace
) -> tuple[Path, int]:
    """Return the artifact after some minutes of search, and the number of trials."""
    if not minutes:
        return _untuned(model, threads, folder, Precision.AS_MODEL), 0
    target = cores_target(threads)
    files = options.records or options.output.with_suffix(".records")
    network = TunedNetwork(model, target, threads=threads, files=files, name=f"{entrant.name}-t{threads}")
    network.tune(minutes, seed=0)
    network.compile()
    return network.artifact_path, network.tuning.trials


def _untuned(model: Model, threads: int, folder: Path, precision: Precision) -> Path:
    path = folder / f"untuned-{precision.value}-t{threads}.tunefarm"
    compile(
        model,
        cores_target(threads),
        output=path,
        history=History([]),
        baseline=False,
        other_shapes=False,
        precision=precision,
    )
    return path


def _time(
    entrant: Entrant,
    model: Model,
    file: Path,
    artifact: Path,
    threads: int,
    folder: Path,
    options: argparse.Namespace,
) -> Timing:
    """Time the artifact and the runtimes that are installed. ONNX Runtime runs a TFLite file as the equivalent ONNX model."""
    files = {"artifact": artifact, "onnxruntime": file}
    left_out: dict[str, str] = {}
    if options.bfloat16:
        try:
            files[BFLOAT16] = _untuned(model, threads, folder, Precision.BFLOAT16)
        except TunefarmError as error:
            left_out[BFLOAT16] = error.message
    if threads > 1:
        files["onnxruntime_still"] = file
    is_tflite = file.suffix == ".tflite"
    if is_tflite:
        converted = folder / f"{file.stem}.onnx"
        import_tflite(file, converted)
        files |= dict.fromkeys(files.keys() - {"artifact", BFLOAT16}, converted)
    for kind in KINDS.values():
        if why_refused(kind, is_tflite=is_tflite):
            continue
        if is_installed(kind):
            files[kind.name] = file
        else:
            left_out[kind.name] = NOT_INSTALLED
    if entrant.network is None or entrant.network.is_architecture:
        others, missing = torch_files(file)
        left_out |= missing
        files |= {kind: path for kind, path in others.items() if kind != TORCH[0]}
    constants = dict(entrant.network.values) if entrant.network else {}
    return time_network(
        files,
        model.inputs,
        threads=threads,
        folder=folder,
        rounds=options.rounds,
        left_out=left_out,
        constants={name: constant_array(value) for name, value in constants.items()},
    )


def _describe(line: Mapping[str, Any]) -> str:
    title = f"{line['network']}, {line['threads']} thread(s), {line['minutes']:g} min"
    if "refused" in line:
        return f"{title}: {line['refused']}"
    return f"{title}: " + ", ".join(f"{kind} {ms:.3g}" for kind, ms in line["latency_ms"].items())


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--output", type=Path, required=True, help="JSON lines; what is finished is skipped")
    parser.add_argument("--networks", nargs="*", default=(), help="networks or packages; all by default")
    parser.add_argument("--threads", type=int, nargs="+", default=[1, 2])
    parser.add_argument("--minutes", type=float, nargs="+", default=[0.0], help="of search, each; 0: untuned")
    parser.add_argument("--rounds", type=int, default=5, help="samples of each contender")
    parser.add_argument("--records", type=Path, help="folder of records; beside the output if left out")
    parser.add_argument("--cache", type=Path, default=CACHE, help="folder of wheels and network files")
    parser.add_argument("--bfloat16", action="store_true", help="also time an untuned artifact of bfloat16")
    parser.add_argument("--offline", action="store_true", help="download nothing")
    parser.add_argument(
        "--torch-python", default=sys.executable, help="interpreter that exports the architectures"
    )
    return parser


if __name__ == "__main__":
    sys.exit(main())
