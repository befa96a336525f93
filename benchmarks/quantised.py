"""Time quantised networks against their float originals, float arithmetic and ONNX Runtime.

    python -m benchmarks.quantised make FOLDER
    taskset -c 1 env TVM_NUM_THREADS=1 python -m benchmarks.quantised time FOLDER > table.md
    python -m benchmarks.quantised beside FOLDER > table.md

One thread for `time`. The first quantises networks with ONNX Runtime's own tool (QDQ, static, calibrated with seeded noise) and builds them untuned;
the second times all that lie there, in turns, and ONNX Runtime at its best beside them; the third compiles the quantised files, without a
search, and times the artifacts in turns with OpenVINO on the same file, by as many threads as the machine has cores. Errors are against ONNX Runtime without graph
optimisations on the quantised network, as shares of the output's root mean square.
"""

from __future__ import annotations

import argparse
from collections.abc import Callable, Iterator, Sequence
from functools import partial
from itertools import product
from pathlib import Path
from statistics import median
from time import perf_counter
from typing import Any

import numpy as np
import onnx
import onnxruntime
import tvm
from benchmarks.models.networks import network_file
from benchmarks.search.machine import one_core_target
from numpy.typing import NDArray
from onnxruntime.quantization import CalibrationDataReader, QuantFormat, QuantType, quantize_static
from onnxruntime.quantization.shape_inference import quant_pre_process
from tvm import relax

import tunefarm_tuning
from tunefarm_tuning import import_model
from tunefarm_tuning.target.parse import detect_host_target
from tunefarm_tuning.target.target import Target
from tunefarm_tuning.tvm.codegen.graph_build import build_model
from tunefarm_tuning.tvm.transform.pipeline import load_relax
from tunefarm_tuning.workload.binding import Binding

Array = NDArray[Any]

NETWORKS: dict[str, list[str] | None] = {
    "resnet18": None,
    "mobilenet_v2": None,
    "encoder4": ["MatMul", "Gemm"],
}
"""What is quantised of each: all that can be, or some operators. An encoder whose sums and norms are rounded as well gives results
of which no two runtimes agree."""
FORMS = {"u8": QuantType.QUInt8, "s8": QuantType.QInt8}
"""Of activations; weights are int8, with a scale per channel."""
_ROUNDS = 21
_SAMPLE_SEC = 0.05
_CALIBRATIONS = 4


class _Noise(CalibrationDataReader):  # type: ignore[misc]
    def __init__(self, path: Path) -> None:
        self._left = iter(_inputs(path, seed) for seed in range(_CALIBRATIONS))

    def get_next(self) -> dict[str, Array] | None:
        return next(self._left, None)


def _inputs(path: Path, seed: int) -> dict[str, Array]:
    rng = np.random.default_rng(seed)
    arrays = {}
    for value in onnx.load(path).graph.input:
        shape = [dimension.dim_value for dimension in value.type.tensor_type.shape.dim]
        arrays[value.name] = rng.standard_normal(shape).astype(np.float32)
    return arrays


def _float_arithmetic(target: Target) -> Target:
    """Return a target without any instruction for products of bytes: for it, quantised networks become kernels of floats."""
    removed = ["-avx512vnni", "-avxvnni", "-avx512bw", "-avx2"]
    return Target.from_json({**target.to_json(), "mattr": removed})


def quantise(network: str, path: Path, output: Path, form: str) -> Path:
    """Write the quantised form of a network, its batch norms merged into its weights beforehand."""
    prepared = output.with_suffix(".prepared")
    quant_pre_process(str(path), str(prepared), skip_symbolic_shape=True)
    quantize_static(
        prepared,
        output,
        _Noise(path),
        quant_format=QuantFormat.QDQ,
        per_channel=True,
        activation_type=FORMS[form],
        weight_type=QuantType.QInt8,
        op_types_to_quantize=NETWORKS[network],
    )
    prepared.unlink()
    return output


def make(folder: Path, network: str) -> None:
    """Write a network, its quantised forms, and libraries of all of them, untuned."""
    target = one_core_target()
    path = network_file(network, folder)
    _build(path, target, folder / f"{network}.float.so")
    for form in FORMS:
        quantised = quantise(network, path, folder / f"{network}.{form}.onnx", form)
        # Its kernels are built for the whole CPU, as all are.
        floats = load_relax(quantised, Binding(), _float_arithmetic(target)).module
        build_model(floats, target, folder / f"{network}.{form}.floats.so")
        _build(quantised, target, folder / f"{network}.{form}.integers.so")


def _build(path: Path, target: Target, output: Path) -> None:
    # Not `compile`: it refuses networks of noise in which a sum or two are rounded to the other side than by ONNX Runtime.
    build_model(load_relax(path, Binding(), target).module, target, output)


def table(folder: Path) -> Iterator[str]:
    """Time all that lies in a folder; yield the lines of a table."""
    yield "| network | activations | what | ms | of ONNX Runtime's time | mean error | largest |"
    yield "|---|---|---|--:|--:|--:|--:|"
    for network in NETWORKS:
        for form in FORMS:
            quantised = folder / f"{network}.{form}.onnx"
            if not quantised.exists():
                continue
            arrays = list(_inputs(quantised, 0).values())
            sessions = {"float": _session(folder / f"{network}.onnx"), "quantised": _session(quantised)}
            wanted = _session(quantised, optimised=False).run(None, _inputs(quantised, 0))[0]
            runners = {
                "tunefarm, float": _library(folder / f"{network}.float.so", arrays),
                "tunefarm, quantised, float arithmetic": _library(
                    folder / f"{network}.{form}.floats.so", arrays
                ),
                "tunefarm, quantised": _library(folder / f"{network}.{form}.integers.so", arrays),
                "ONNX Runtime, float": partial(sessions["float"].run, None, _inputs(quantised, 0)),
                "ONNX Runtime, quantised": partial(sessions["quantised"].run, None, _inputs(quantised, 0)),
            }
            seconds = _time(list(runners.values()))
            for (name, run), taken in zip(runners.items(), seconds, strict=True):
                outputs = run()
                apart = np.abs(
                    np.asarray(outputs[0] if isinstance(outputs, list) else outputs.numpy()) - wanted
                )
                size = np.sqrt(np.mean(np.square(wanted)))
                yield (
                    f"| {network} | {form} | {name} | {taken * 1e3:.3f} | {taken / seconds[-1]:.2f} "
                    f"| {apart.mean() / size:.1e} | {apart.max() / size:.1e} |"
                )


def beside(folder: Path, networks: Sequence[str]) -> Iterator[str]:
    """Compile the quantised networks in a folder and time them beside OpenVINO; yield the lines of a table."""
    names = {
        "onnxruntime": "ONNX Runtime",
        "openvino": "OpenVINO",
        "openvino_default": "OpenVINO as it comes",
    }
    yield f"| network | activations | tunefarm, ms | {' | '.join(f'{name}, ms' for name in names.values())} | of OpenVINO's best |"
    yield f"|---|---|--:|{'--:|' * len(names)}--:|"
    for network, form in product(networks, FORMS):
        artifact = tunefarm_tuning.compile(
            import_model(folder / f"{network}.{form}.onnx"),
            detect_host_target(),
            output=folder / f"{network}.{form}.tunefarm",
            baselines=("openvino", "openvino_default"),
        )
        latency = artifact.report["latency"]
        ms = {name: latency[name]["median_sec"] * 1e3 for name in ("tuned", *names)}
        best = min(ms["openvino"], ms["openvino_default"])
        cells = " | ".join(f"{each:.2f}" for each in ms.values())
        yield f"| {network} | {form} | {cells} | {ms['tuned'] / best:.2f} |"


def _library(path: Path, arrays: Sequence[Array]) -> Callable[[], Any]:
    machine = relax.VirtualMachine(tvm.runtime.load_module(str(path)), tvm.cpu())
    return partial(machine["main"], *[tvm.runtime.tensor(array) for array in arrays])


def _session(path: Path, *, optimised: bool = True) -> onnxruntime.InferenceSession:
    options = onnxruntime.SessionOptions()
    options.intra_op_num_threads = 1
    if not optimised:
        options.graph_optimization_level = onnxruntime.GraphOptimizationLevel.ORT_DISABLE_ALL
    return onnxruntime.InferenceSession(str(path), options, providers=["CPUExecutionProvider"])


def _time(runners: Sequence[Callable[[], Any]]) -> list[float]:
    """Return the median seconds of each, taken in turns."""
    numbers = [max(1, round(_SAMPLE_SEC / min(_seconds(run, 1) for _ in range(3)))) for run in runners]
    samples: list[list[float]] = [[] for _ in runners]
    for _ in range(_ROUNDS):
        for run, number, taken in zip(runners, numbers, samples, strict=True):
            _seconds(run, 1)  # its weights into the caches again
            taken.append(_seconds(run, number))
    return [median(taken) for taken in samples]


def _seconds(run: Callable[[], Any], number: int) -> float:
    begin = perf_counter()
    for _ in range(number):
        run()
    return (perf_counter() - begin) / number


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("what", choices=("make", "time", "beside"))
    parser.add_argument("folder", type=Path)
    parser.add_argument("--networks", nargs="+", choices=NETWORKS, default=list(NETWORKS))
    options = parser.parse_args()
    if options.what != "make":
        lines = table(options.folder) if options.what == "time" else beside(options.folder, options.networks)
        for line in lines:
            print(line, flush=True)
        return
    for network in options.networks:
        make(options.folder, network)


if __name__ == "__main__":
    main()
