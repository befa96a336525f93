"""Networks with and without oneDNN for their kernels, each beside OpenVINO: what `-libs=dnnl` gains.

    python -m benchmarks.libraries FOLDER --networks resnet18 encoder4 mobilenet_v2 --precisions as-model bfloat16

Each artifact is compiled without a search, and timed in turns with the other runtimes in its own compile. So a network's two artifacts
compare by their ratios to a runtime.
"""

from __future__ import annotations

import argparse
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

from benchmarks.models.networks import network_file

from tunefarm_tuning import compile, import_model  # noqa: A004
from tunefarm_tuning.target.parse import detect_host_target
from tunefarm_tuning.target.target import Target

_RIVALS = {"openvino": "OpenVINO, float32", "openvino_default": "OpenVINO as it comes"}


def table(folder: Path, networks: list[str], precisions: list[str]) -> Iterator[str]:
    """Compile and time each network; yield the lines of a table."""
    names = list(_RIVALS.values())
    yield f"| network | precision | kernels by oneDNN | ms | {' | '.join(f'of {name}' for name in names)} |"
    yield f"|---|---|--:|--:|{'--:|' * len(names)}"
    for network in networks:
        for precision in precisions:
            for libraries in ([], ["dnnl"]):
                report = _report(folder, network, precision, libraries)
                yield _line(network, precision, report)


def _report(folder: Path, network: str, precision: str, libraries: list[str]) -> Mapping[str, Any]:
    host = detect_host_target().to_json()
    target = Target.from_json({**host, "libs": libraries} if libraries else host)
    artifact = compile(
        import_model(network_file(network, folder)),
        target,
        output=folder / f"{network}.{precision}.{'-'.join(libraries) or 'own'}.tunefarm",
        precision=precision,
        baselines=tuple(_RIVALS),
    )
    return artifact.report


def _line(network: str, precision: str, report: Mapping[str, Any]) -> str:
    latency = report["latency"]
    sec = latency["tuned"]["median_sec"]
    by_library = sum(
        entry["chosen"] and bool(entry["library"]) for entry in report["alternatives"]["candidates"]
    )
    ratios = [f"{sec / latency[name]['median_sec']:.2f}" if name in latency else "–" for name in _RIVALS]
    return f"| {network} | {precision} | {by_library} | {sec * 1e3:.2f} | {' | '.join(ratios)} |"


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("folder", type=Path)
    parser.add_argument("--networks", nargs="+", default=["resnet18", "encoder4", "mobilenet_v2"])
    parser.add_argument("--precisions", nargs="+", default=["as-model", "bfloat16"])
    options = parser.parse_args()
    for line in table(options.folder, options.networks, options.precisions):
        print(line, flush=True)


if __name__ == "__main__":
    main()
