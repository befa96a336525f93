"""Compile networks of the corpus for emulated Arm machines, run them there, and compare their outputs with x86's.

    python -m benchmarks.arm.corpus --output out/arm.jsonl           # all; `--cache`: where benchmarks.corpus keeps networks
    python -m benchmarks.arm.corpus --output out/arm.jsonl --again   # what was not right
    python -m benchmarks.arm.corpus --output out/arm.jsonl --assembly  # quantised ones, built and not run: minutes, not hours
    python -m benchmarks.arm.corpus --table out/arm.jsonl            # into benchmarks/results/arm_corpus.md

Each network is compiled untuned, for this machine and for the Arm machine, whose RPC server runs the checks of the compile: outputs
as ONNX Runtime's here, within the product's comparison. Then each artifact runs by its own loader, on its own machine, on the same
random inputs. A line is written when a network is finished, and what is finished is not run again. Times of an emulated machine mean nothing.
"""

from __future__ import annotations

import argparse
import subprocess
import sys
import tempfile
from collections.abc import Mapping, Sequence
from contextlib import closing, suppress
from pathlib import Path
from typing import Any

import numpy as np
from benchmarks.arm.machine import (
    CORTEX_A72,
    CORTEX_A76,
    MAX,
    NEOVERSE_N1,
    ArmMachine,
    HungError,
    make_machine,
)
from benchmarks.corpus.listing import Network, read_corpus
from benchmarks.corpus.run import CACHE, last_lines
from benchmarks.corpus.way import Status, constant_array, import_params, status_of
from benchmarks.corpus.wheels import UnavailableError, network_file
from benchmarks.models.facts import machine as machine_facts
from benchmarks.models.facts import package_versions
from benchmarks.search import json_lines
from benchmarks.search.machine import ROOT, child_environment, one_core_target
from benchmarks.search.markdown import table

from tunefarm_tuning.core.errors import TunefarmError
from tunefarm_tuning.process import ChildFailed, ChildLimits, ChildProcess
from tunefarm_tuning.reference.comparison import compare_arrays
from tunefarm_tuning.reference.random_inputs import random_inputs
from tunefarm_tuning.target.dot_products import byte_products
from tunefarm_tuning.target.parse import parse_target
from tunefarm_tuning.testing.local_rpc import local_rpc
from tunefarm_tuning.workload.task import TensorSpec

RESULTS = ROOT / "benchmarks" / "results" / "arm_corpus.md"
TRIPLE = "-mtriple=aarch64-linux-gnu -num-cores=1"
MACHINES = {
    "cortex-a72": (CORTEX_A72, f"llvm -mcpu=cortex-a72 -mattr=-aes {TRIPLE}"),
    "cortex-a76": (CORTEX_A76, f"llvm -mcpu=cortex-a76 {TRIPLE}"),
    "neoverse-n1": (NEOVERSE_N1, f"llvm -mcpu=neoverse-n1 {TRIPLE}"),
    "i8mm": (MAX, f"llvm -mcpu=generic -mattr=+bf16,+dotprod,+fullfp16,+i8mm {TRIPLE}"),
}
"""Emulated machines, and the targets that their agents register with."""
FLOATS = (
    *(
        "wake-alexa",
        "wake-mycroft",
        "wake-jarvis",
        "wake-weather",
        "wake-timer",
        "wake-marvin",
        "melspectrogram",
        "speech-embedding",
        "magika",
        "swift-f0",
    ),
    *("silero-vad", "silero-vad-half", "silero-vad-3", "aecmos-1", "plcmos", "dnsmos-p808", "attacut-c"),
    *(
        "surrogate-gradient-boosting",
        "surrogate-neighbours-classifier",
        "basic-pitch",
        "eeg-seizure-a",
        "page-orientation",
        "ppocr2-direction",
    ),
    *("face-detection-short-fp32", "mediapipe-selfie-segmentation-landscape", "mediapipe-face-landmark"),
    *("mediapipe-hand-recrop", "onnx-squeezenet"),
)
QUANTISED = (
    *("micro-wake-alexa", "micro-wake-hey-jarvis", "micro-wake-hey-mycroft", "micro-wake-okay-nabu"),
    *("tashkeel-rawi", "tashkeel-bilstm", "voicefilter", "minilm-l6-int8", "ddddocr-old"),
    *("voicefilter-embedder", "tashkeel-rawi-2", "tashkeel-rawi-3", "tashkeel-ensemble", "smart-turn"),
)
"""Small ones of all kinds: QEMU takes about fifty times as long."""
BUILT = "built"
"""The status of a network whose kernels were built and not run."""
_INSTRUCTIONS = ("sdot", "smmla")
_COMPILE_SEC = 3600.0
_READY_SEC = 1200.0  # an emulated server beside other work
_TRIES = 3  # QEMU's user mode now and then hangs where a process has threads
_RUN = """
import sys
artifact, inputs, outputs = sys.argv[1:]
sys.path.insert(0, artifact)
import numpy as np
from loader import load
with np.load(inputs) as arrays:
    feeds = {name: arrays[name] for name in arrays.files}
np.savez(outputs, *load(artifact)(**feeds).values())
"""


def main(arguments: Sequence[str] | None = None) -> int:
    """Run networks, or write the table; 0 if all are right."""
    options = _parser().parse_args(arguments)
    if options.table is not None:
        RESULTS.write_text(page(last_lines(json_lines.load(options.table))), encoding="utf-8")
        return 0
    if options.output is None:
        _parser().error("--output or --table is needed")
    networks = {network.name: network for network in read_corpus()}
    wanted = {Status.RIGHT, *({BUILT} if options.assembly else ())}
    finished = last_lines(json_lines.load(options.output))
    right = True
    for name, kind in _chosen(options.networks, options.machines):
        if options.assembly and name not in QUANTISED:
            continue
        line = finished.get(key := f"{name} on {kind}")
        if line is None or (options.again and line["status"] not in wanted):
            line = {"kind": "network", "network": key, "name": name, "machine": kind}
            line |= run_network(networks[name], kind, options.cache, runs=not options.assembly)
            line |= {"versions": package_versions(), "host": machine_facts()}
            json_lines.append(options.output, line)
        print(f"{key}: {line['status']} {line.get('message', '')}", file=sys.stderr, flush=True)
        right = right and line["status"] in wanted
    return 0 if right else 1


def run_network(network: Network, kind: str, cache: Path, *, runs: bool) -> dict[str, Any]:
    """Return the line of a network on an emulated machine; without `runs` its kernels are built, and their instructions read."""
    cpu, target = MACHINES[kind]
    line: dict[str, Any] = {"status": Status.RIGHT.value}
    child = ChildProcess(
        "benchmarks.corpus.network_child",
        limits=ChildLimits(memory_bytes=None),
        access=None,
        env=child_environment(1),
    )
    with closing(child), tempfile.TemporaryDirectory(prefix="tunefarm-arm-") as scratch:
        folder = Path(scratch)
        try:
            file = network_file(network, cache)
            imported = child.call("import_network", import_params(network, file), timeout_sec=_COMPILE_SEC)
            wanted = {"target": target, "instructions": _INSTRUCTIONS}
            if byte_products(parse_target(target)) is not None:
                line["products"] = child.call("products", wanted, timeout_sec=_COMPILE_SEC)
            if not runs:
                return {**line, "status": BUILT}
            here = {"target": one_core_target().key, "path": str(folder / "here.tunefarm"), "goal_sec": 0.0}
            child.call("compile_untuned", here, timeout_sec=_COMPILE_SEC)
            machine = make_machine(cpu)
            server = rpc_server(machine, folder)
            with local_rpc(key=kind, server_command=server, ready_timeout_sec=_READY_SEC) as rpc:
                there = {**here, "target": target, "path": str(folder / "there.tunefarm")}
                device = rpc.device.to_json()
                compiled = child.call(
                    "compile_untuned", {**there, "device": device}, timeout_sec=_COMPILE_SEC
                )
            line["checks"] = compiled["checks"]["ok"]
            specs = [TensorSpec.from_json(spec) for spec in imported["inputs"]]
            line |= _against_x86(machine, folder, specs, network)
        except UnavailableError as error:
            line |= {"status": Status.UNAVAILABLE.value, "message": str(error)}
        except TunefarmError as error:
            line |= {"status": status_of(error).value, "code": error.code, "message": error.message}
            line |= {"detail": error.detail} if isinstance(error, ChildFailed) else {}
        except subprocess.TimeoutExpired as error:
            line |= {"status": Status.FAILED.value, "message": f"the artifact's loader: {error}"}
    return line


def rpc_server(machine: ArmMachine, folder: Path) -> list[str]:
    """Return the command of the machine's RPC server."""
    path = f"PYTHONPATH={machine.environment['PYTHONPATH']}"
    module = ("-m", "tunefarm_workers.device.hardened_server", "--key", "{key}", "--tracker", "{tracker}")
    return [
        "env",
        path,
        "TVM_NUM_THREADS=1",
        "TVM_USE_RUNTIME_LIB=1",
        str(machine.python),
        *module,
        "--work-dir",
        str(folder / "rpc"),
    ]


def _against_x86(
    machine: ArmMachine, folder: Path, specs: Sequence[TensorSpec], network: Network
) -> dict[str, Any]:
    """Run both artifacts by their own loaders, and return by how much their outputs differ at most."""
    feeds = dict(zip([spec.name for spec in specs], random_inputs(specs, seed=7), strict=True))
    feeds |= {name: constant_array(value) for name, value in network.values.items() if name in feeds}
    np.savez(folder / "inputs.npz", **feeds)
    program = folder / "run.py"
    program.write_text(_RUN)
    subprocess.run([sys.executable, program, *_files(folder, "here")], check=True, timeout=_COMPILE_SEC)
    run_patiently(machine, program, *_files(folder, "there"))
    with np.load(folder / "here.npz") as here, np.load(folder / "there.npz") as there:
        pairs = [(here[name], there[name]) for name in here.files]
    comparisons = [compare_arrays("output", actual, expected) for expected, actual in pairs]
    return {
        "apart": max(apart(actual, expected) for expected, actual in pairs),
        "within_fixed": all(comparison.ok for comparison in comparisons),
    }


def run_patiently(machine: ArmMachine, *arguments: object) -> None:
    """Run the machine's Python, again if it hangs.

    Raises:
        HungError: If it did not end in any of three tries.
    """
    for _ in range(_TRIES - 1):
        with suppress(HungError):
            machine.run(*arguments)
            return
    machine.run(*arguments)


def _files(folder: Path, machine: str) -> list[Path]:
    return [folder / f"{machine}.tunefarm", folder / "inputs.npz", folder / f"{machine}.npz"]


def apart(actual: np.ndarray, expected: np.ndarray) -> float:
    """Return the largest difference as a share of the root mean square of what is expected; NaN where both have it is none."""
    wide, wanted = actual.astype(np.float64), expected.astype(np.float64)
    compared = ~(np.isnan(wide) & np.isnan(wanted))
    wide, wanted = wide[compared], wanted[compared]
    if wide.size == 0:
        return 0.0
    size = float(np.sqrt(np.mean(np.square(wanted))))
    return float(np.abs(wide - wanted).max()) / (size or 1.0)


def _chosen(networks: Sequence[str], machines: Sequence[str]) -> list[tuple[str, str]]:
    pairs = [(name, "cortex-a72") for name in (*FLOATS, *QUANTISED)]
    pairs += [(name, kind) for kind in ("cortex-a76", "neoverse-n1", "i8mm") for name in QUANTISED]
    return [(name, kind) for name, kind in pairs if kind in machines and (not networks or name in networks)]


def page(lines: Mapping[str, Mapping[str, Any]]) -> str:
    """Return the page of results."""
    parts = [_HEAD]
    for kind, (_, target) in MACHINES.items():
        shown = len(_COLUMNS) if byte_products(parse_target(target)) is not None else _OF_FLOATS
        rows = [_row(line)[:shown] for line in lines.values() if line["machine"] == kind]
        if rows:
            right, built = (sum(row[1] == status for row in rows) for status in (Status.RIGHT, BUILT))
            parts.append(
                f"## {kind}: {right} of {len(rows) - built} right{f', {built} built' if built else ''}\n"
            )
            parts.append(table(_COLUMNS[:shown], rows) + "\n")
    return "\n".join(parts)


_HEAD = """# Networks of the corpus on emulated Arm machines

```sh
python -m benchmarks.arm.corpus --output out/arm.jsonl
python -m benchmarks.arm.corpus --table out/arm.jsonl
```

**No Arm silicon was used**: QEMU emulates the machines. *Right*: the network was compiled untuned, its outputs on the machine are ONNX Runtime's (on x86-64) within the [comparison](../../docs/glossary.md), and the artifact ran there by its own loader. *Built*: its kernels were built, and not run (`--assembly`). *Apart*: the largest difference between its outputs and those of the artifact for x86-64 on the same random inputs, as a share of their root mean square; in a network that rounds its activations, a step is large. The other columns count kernels that multiply: quantised convolutions and products, and depthwise convolutions apart, whose assembly has `sdot` or `smmla`, of all; and those in float32: products of two activations, as an attention's, and those by weights that are stored as bytes and read by float activations. A Cortex-A72 has neither instruction, and multiplies in float32.
"""
_COLUMNS = (
    *("network", "result", "apart from x86-64", "instructions"),
    *("convolutions by them", "products by them", "depthwise by them", "in float32"),
)
_OF_FLOATS = 3


def _row(line: Mapping[str, Any]) -> tuple[str, ...]:
    if line["status"] not in (Status.RIGHT, BUILT):
        return (line["name"], f"{line['status']}: {line['message']}", *[""] * (len(_COLUMNS) - 2))
    kernels = line.get("products", ())
    dense = [kernel for kernel in kernels if "byte_" in kernel["name"]]
    convolutions = [kernel for kernel in dense if "conv" in kernel["name"]]
    products = [kernel for kernel in dense if "conv" not in kernel["name"]]
    depthwise = [kernel for kernel in kernels if "of_bytes" in kernel["name"]]
    return (
        line["name"],
        line["status"],
        f"{line['apart']:.1e}" if "apart" in line else "-",
        ", ".join(sorted({name for kernel in kernels for name in kernel["instructions"]})) or "-",
        *(_share(convolutions), _share(products), _share(depthwise)),
        str(len(kernels) - len(dense) - len(depthwise) or "-"),
    )


def _share(kernels: Sequence[Mapping[str, Any]]) -> str:
    having = sum(bool(kernel["instructions"]) for kernel in kernels)
    return f"{having} of {len(kernels)}" if kernels else "-"


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--output", type=Path, help="JSON lines; finished networks are skipped")
    parser.add_argument("--table", type=Path, help="write the page of these lines instead")
    parser.add_argument("--networks", nargs="*", default=(), help="their names; all by default")
    parser.add_argument("--machines", nargs="*", default=tuple(MACHINES), choices=tuple(MACHINES))
    parser.add_argument("--assembly", action="store_true", help="build quantised networks, and run none")
    parser.add_argument("--again", action="store_true", help="also run what was not right")
    parser.add_argument("--cache", type=Path, default=CACHE, help="folder of wheels and network files")
    return parser


if __name__ == "__main__":
    sys.exit(main())
