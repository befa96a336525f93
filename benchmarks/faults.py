"""Put faults into kernels of compiled networks, and count which of them the comparison with ONNX Runtime finds.

    python -m benchmarks.faults --output out/faults.jsonl NETWORK [...]    # names of the corpus
    python -m benchmarks.faults --output out/faults.jsonl net.onnx         # or files
    python -m benchmarks.faults --table out/faults.jsonl                   # into benchmarks/results/faults.md

The network that runs is the compiled one: TVM's virtual machine calls a hook before and after each kernel, which changes an argument
or the result of one of them. A fault that the outputs do not show is put into the network as the compile checks it segment by
segment, too, in a kernel at the same place.
"""

from __future__ import annotations

import argparse
import json
import tempfile
from collections.abc import Callable, Iterable, Mapping, Sequence
from contextlib import closing
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import tvm
from benchmarks.corpus.listing import read_corpus
from benchmarks.corpus.run import CACHE
from benchmarks.corpus.wheels import network_file
from benchmarks.search.markdown import table
from numpy.typing import NDArray
from tvm import relax

from tunefarm_tuning import import_model, parse_target
from tunefarm_tuning.core.array_file import load_arrays
from tunefarm_tuning.reference.comparison import STEPS, TIES, compare_outputs
from tunefarm_tuning.reference.onnx_runtime import InputSet, Reference
from tunefarm_tuning.reference.widths import load_widths
from tunefarm_tuning.tvm.base.resources import with_deep_stack
from tunefarm_tuning.tvm.codegen.graph_build import build_model
from tunefarm_tuning.tvm.transform.pipeline import load_relax
from tunefarm_tuning.workload.model import Model
from tunefarm_tuning.workload.task import TensorSpec

RESULTS = Path(__file__).parent / "results" / "faults.md"
KERNELS = 4
_MEMORY_BYTES = 16 << 30
_TIMEOUT_SEC = 600.0
_SEED = 1


def without_bias(arguments: list[NDArray[Any]]) -> bool:
    """Set the smallest argument that has one value per channel to zero."""
    result = arguments[-1]
    for values in arguments[1:-1]:
        if result.ndim and values.size == result.shape[-1] > 1 and values.dtype.kind == "f" and values.any():
            values[...] = 0
            return True
    return False


def shifted_padding(arguments: list[NDArray[Any]]) -> bool:
    """Move the first argument by one place along its first axis of several."""
    data = arguments[0]
    axis = next((axis for axis, size in enumerate(data.shape[:-1]) if size > 1), None)
    if axis is None or data.ndim < 3 or data.dtype.kind not in "fiu":
        return False
    data[...] = np.roll(data, 1, axis)
    np.moveaxis(data, axis, 0)[0] = 0
    return True


def swapped_channels(arguments: list[NDArray[Any]]) -> bool:
    """Swap the first two channels of the result."""
    result = arguments[-1]
    if result.ndim < 2 or result.shape[-1] < 2 or result.dtype.kind not in "fiu":
        return False
    result[..., [0, 1]] = result[..., [1, 0]]
    return True


def scaled(arguments: list[NDArray[Any]]) -> bool:
    """Make the result 0.1 % too large."""
    if arguments[-1].dtype.kind != "f":
        return False
    arguments[-1][...] *= arguments[-1].dtype.type(1.001)
    return True


def one_wrong_element(arguments: list[NDArray[Any]]) -> bool:
    """Move one element of the result by a tenth of the root mean square; an integer by two steps at least."""
    result = arguments[-1].reshape(-1)
    if result.size < 2 or result.dtype.kind not in "fiu":
        return False
    sizes = np.abs(result.astype(np.float64))
    middle = int(np.argsort(sizes)[result.size // 2 :][0])
    amount = 0.1 * float(np.sqrt(np.mean(np.square(sizes))))
    if result.dtype.kind == "f":
        result[middle] += amount
    else:
        steps = max(2, round(amount))
        result[middle] += steps if int(result[middle]) + steps <= np.iinfo(result.dtype).max else -steps
    return True


BEFORE: Mapping[str, Callable[[list[NDArray[Any]]], bool]] = {
    "bias left out": without_bias,
    "padding off by one": shifted_padding,
}
AFTER: Mapping[str, Callable[[list[NDArray[Any]]], bool]] = {
    "channels swapped": swapped_channels,
    "0.1 % too large": scaled,
    "one element wrong": one_wrong_element,
}
FAULTS = (*BEFORE, *AFTER)


@dataclass(slots=True)
class Fault:
    """A fault in a kernel, each time it is called: put in by the hook, and taken out again after the call.

    Attributes:
        kind: One of `FAULTS`.
        call: The number of the first call.
        kernel: The kernel's name, once it was called.
        done: Whether it changed anything.
    """

    kind: str
    call: int
    kernel: str = ""
    done: bool = False


class Machine:
    """A compiled network whose kernels can be made wrong.

    Args:
        library: The compiled network.
    """

    def __init__(self, library: Path) -> None:
        self._machine = relax.VirtualMachine(tvm.runtime.load_module(str(library)), tvm.cpu())
        self._fault: Fault | None = None
        self._call = 0
        self._kept: list[tuple[Any, NDArray[Any]]] = []
        self._machine.set_instrument(self._hook)

    def run(self, inputs: Sequence[NDArray[Any]], fault: Fault | None = None) -> list[NDArray[Any]]:
        """Return the outputs, with a fault."""
        self._fault, self._call = fault, 0
        outputs = self._machine["main"](*[tvm.runtime.tensor(array) for array in inputs])
        flat = [outputs] if isinstance(outputs, tvm.runtime.Tensor) else list(outputs)
        return [output.numpy() for output in flat]

    @property
    def calls(self) -> int:
        """The number of kernels that the last run called."""
        return self._call

    def _hook(self, _function: Any, name: str, before: bool, _result: Any, *arguments: Any) -> int:
        if name.startswith("vm.builtin"):
            return 0
        fault = self._fault
        if fault is not None and fault.call == self._call:
            fault.kernel = name
        if fault is not None and fault.kernel == name:
            tensors = [value for value in arguments if isinstance(value, tvm.runtime.Tensor)]
            if before:
                self._put(fault, BEFORE.get(fault.kind), tensors, keep=True)
            else:
                for tensor, values in self._kept:
                    tensor.copyfrom(values)
                self._kept = []
                self._put(fault, AFTER.get(fault.kind), tensors, keep=False)
        self._call += not before
        return 0

    def _put(
        self,
        fault: Fault,
        change: Callable[[list[NDArray[Any]]], bool] | None,
        tensors: Sequence[Any],
        *,
        keep: bool,
    ) -> None:
        if change is None or not tensors:
            return
        values = [tensor.numpy() for tensor in tensors]
        were = [array.copy() for array in values]
        if not change(values):
            return
        for tensor, array, was in zip(tensors, values, were, strict=True):
            if not np.array_equal(array, was):
                fault.done = True
                tensor.copyfrom(array)
                if keep:
                    self._kept.append((tensor, was))


def run_network(name: str, model: Model, folder: Path, threads: int) -> dict[str, Any]:
    """Compile a network by default schedules, put faults into it, and return what was found."""
    with closing(
        Reference(model, folder, threads=threads, memory_bytes=_MEMORY_BYTES, timeout_sec=_TIMEOUT_SEC)
    ) as reference:
        sets = reference.make(_SEED)
        machine = _built(model, folder / "whole.so")
        names = [spec.name for spec in model.outputs]
        clean = [comparison for given in sets for comparison in _compared(machine, names, given, None)]
        trials = list(_try(machine, names, sets))
        missed = [trial for trial in trials if not trial["found"]]
        line = {
            "network": name,
            "right": all(comparison.ok for comparison in clean),
            "message": next((comparison.message for comparison in clean if not comparison.ok), ""),
            "runs": reference.runs,
            "outputs": trials,
            "segments": [],
        }
        if missed and (reference.runs is not None or sets[0].rounding == STEPS):
            reply = reference.make_segments(sets[0], None, "segments")
            if reply["segments"] is not None:
                line["segments"] = list(_try_segments(reply, sets[0], folder, missed))
    return line


def _try_segments(
    reply: Mapping[str, Any], given: InputSet, folder: Path, missed: Iterable[Mapping[str, Any]]
) -> Iterable[dict[str, Any]]:
    files = {key: Path(path) for key, path in reply["files"].items()}
    specs = {key: tuple(TensorSpec.from_json(spec) for spec in reply[key]) for key in ("inputs", "outputs")}
    cut = Model(
        path=files["model"], sha256="", inputs=specs["inputs"], outputs=specs["outputs"], operators=(),
        opset=0, num_params=0,
    )  # fmt: skip
    machine = _built(cut, folder / "segments.so")
    cut_set = InputSet(
        kind=given.kind,
        seed=given.seed,
        inputs=files["inputs"],
        expected=files["outputs"],
        widths=files["widths"],
        rounding=TIES,
    )
    names = [spec.name for spec in cut.outputs]
    clean = _compared(machine, names, cut_set, None)
    wrong = [comparison for comparison in clean if not comparison.ok]
    if wrong:
        print(
            f"{len(wrong)} of {len(clean)} segments are refused without a fault: {wrong[0].name}: {wrong[0].message}"
        )
        return
    calls = machine.calls
    for trial in missed:
        # the kernels differ: they are joined less across cuts
        at = round(trial["share"] * (calls - 1))
        for call in (*range(at, calls), *range(at - 1, -1, -1)):
            fault = Fault(trial["fault"], call)
            compared = _compared(machine, names, cut_set, fault)
            if fault.done:
                yield {**trial, "found": not all(comparison.ok for comparison in compared)}
                break


def _try(machine: Machine, names: Sequence[str], sets: Sequence[InputSet]) -> Iterable[dict[str, Any]]:
    calls = machine.calls
    for kind in FAULTS:
        tried: set[int] = set()
        for number in range(KERNELS):
            at = round((number + 0.5) / KERNELS * (calls - 1))
            for call in range(at, calls):
                fault = Fault(kind, call)
                compared = _compared(machine, names, sets[-1], fault)
                if not fault.done or call in tried:
                    continue
                tried.add(call)
                is_found = not all(comparison.ok for comparison in compared)
                for given in sets[:-1]:
                    if not is_found:
                        again = Fault(kind, call)
                        is_found = not all(
                            comparison.ok for comparison in _compared(machine, names, given, again)
                        )
                yield {"fault": kind, "call": call, "share": call / max(1, calls - 1), "found": is_found}
                break


def _built(model: Model, library: Path) -> Machine:
    target = parse_target("host")

    def build() -> None:
        loaded = load_relax(model.path, model.binding, target)
        build_model(loaded.module, target, library)

    with_deep_stack(build)
    return Machine(library)


def _compared(machine: Machine, names: Sequence[str], given: InputSet, fault: Fault | None) -> list[Any]:
    outputs = machine.run(load_arrays(given.inputs), fault)
    return compare_outputs(
        names, outputs, load_arrays(given.expected), rounding=given.rounding, widths=load_widths(given.widths)
    )


def results(lines: Sequence[Mapping[str, Any]]) -> str:
    """Return the page of results."""
    rows: list[list[str]] = []
    total: dict[str, list[int]] = {kind: [0, 0, 0] for kind in FAULTS}
    refused = 0
    for line in lines:
        cells = []
        runs = line["runs"]
        # A compile checks a network that rounds segment by segment, and any other whose outputs do not notice a layer that is off.
        in_segments_too = runs is None or runs["noticed"] < runs["probes"] or not runs["probes"]
        counted = [*line["outputs"], *(line["segments"] if in_segments_too else ())]
        refused += sum(trial["found"] for trial in counted)
        for kind in FAULTS:
            tried = [trial for trial in line["outputs"] if trial["fault"] == kind]
            at_outputs = sum(trial["found"] for trial in tried)
            in_segments = sum(trial["found"] for trial in line["segments"] if trial["fault"] == kind)
            total[kind] = [
                a + b for a, b in zip(total[kind], (len(tried), at_outputs, in_segments), strict=True)
            ]
            cells.append(f"{at_outputs} + {in_segments} of {len(tried)}" if tried else "-")
        probes = f"{runs['noticed']} of {runs['probes']}" if runs else "-"
        rows.append([line["network"], "yes" if line["right"] else "NO", probes, *cells])
    rows.append(["all", "", "", *(f"{b} + {c} of {a}" for a, b, c in total.values())])
    tried, noticed = sum(t[0] for t in total.values()), sum(t[1] + t[2] for t in total.values())
    return (
        "# Faults in kernels, and which of them are found\n\n"
        "```sh\npython -m benchmarks.faults --output out/faults.jsonl NETWORK [...]\n"
        "python -m benchmarks.faults --table out/faults.jsonl\n```\n\n"
        f"{noticed} of {tried} faults in {len(lines)} networks are found. A cell says how many the comparison of outputs finds, how many more the "
        "check segment by segment (of a kernel at the same place there), and how many there were. `right` says whether the network passes without a fault; `notices` in how many "
        "layers tried ONNX Runtime's own outputs show weights that are 0.1 % too large; a dash or 0 of 0: a network that rounds its activations. "
        "Where they show all of them, a compile does not check segment by segment, and finds what the first number says: "
        f"{refused} of the {tried} faults are refused by a compile as it is.\n\n"
        + table(["network", "right", "notices", *FAULTS], rows)
        + "\n"
    )


def main(arguments: Sequence[str] | None = None) -> int:
    """Run networks, or print the table; 1 if a network is refused without a fault."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0] if __doc__ else "")
    parser.add_argument("networks", nargs="*")
    parser.add_argument("--output", type=Path)
    parser.add_argument("--table", type=Path)
    parser.add_argument("--threads", type=int, default=2)
    parser.add_argument("--shapes", type=json.loads, default={}, help="of a file's inputs, as JSON")
    options = parser.parse_args(arguments)
    if options.table:
        lines = [json.loads(line) for line in options.table.read_text().splitlines()]
        RESULTS.write_text(results(lines))
        return 0
    corpus = {network.name: network for network in read_corpus()} if options.networks else {}
    right = True
    for name in options.networks:
        network = corpus.get(name)
        path = Path(name) if network is None else network_file(network, CACHE)
        shapes = options.shapes if network is None else network.shapes
        model = import_model(path, shapes=shapes, values={} if network is None else network.values)
        with tempfile.TemporaryDirectory(prefix="tunefarm-") as folder:
            line = run_network(path.stem if network is None else name, model, Path(folder), options.threads)
        right &= line["right"]
        text = json.dumps(line)
        if options.output:
            with options.output.open("a") as file:
                file.write(text + "\n")
        else:
            print(text)
    return 0 if right else 1


if __name__ == "__main__":
    raise SystemExit(main())
