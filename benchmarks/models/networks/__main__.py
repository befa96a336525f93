"""Write the networks of the benchmark as ONNX files."""

from __future__ import annotations

import argparse
from collections.abc import Sequence
from pathlib import Path

from benchmarks.models.networks import GROUPS, NETWORKS, written_out
from benchmarks.models.networks.graph import write_network


def main(arguments: Sequence[str] | None = None) -> None:
    parser = argparse.ArgumentParser(prog="python -m benchmarks.models.networks", description=__doc__)
    parser.add_argument("--write", type=Path, required=True, metavar="FOLDER")
    parser.add_argument(
        "names",
        nargs="*",
        metavar="NAME",
        default=["measured"],
        help=f"of {', '.join(NETWORKS)}, or {' or '.join(GROUPS)} for several; measured if left out",
    )
    options = parser.parse_args(arguments)
    names = written_out(options.names)
    if unknown := [name for name in names if name not in NETWORKS]:
        parser.error(f"there is no network {unknown[0]!r}")
    options.write.mkdir(parents=True, exist_ok=True)
    for name in names:
        path = write_network(NETWORKS[name](), options.write / f"{name}.onnx")
        print(f"{path}: {path.stat().st_size / 1e6:.1f} MB", flush=True)


if __name__ == "__main__":
    main()
