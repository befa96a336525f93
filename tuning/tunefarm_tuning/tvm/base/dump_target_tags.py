"""Write `target_tags.json`: the targets that the installed TVM knows, for processes that do not import it.

Run ``python -m tunefarm_tuning.tvm.base.dump_target_tags`` after a change of TVM's version.
"""

from __future__ import annotations

import json
import pkgutil
from pathlib import Path
from typing import Any

import tvm
from tvm.target import Target, codegen
from tvm.target.target import _ffi_api

from tunefarm_tuning.tvm.base.serialization import to_plain
from tunefarm_tuning.tvm.base.tvm_import import load_backend

TABLE_PATH = Path(__file__).parents[2] / "target" / "target_tags.json"

_KINDS = ("llvm", "cuda")
_TRIPLES = ("x86_64-linux-gnu", "aarch64-linux-gnu", "armv7a-linux-gnueabihf", "riscv64-unknown-linux-gnu")
# Always given: TVM would fill in the GPU of this machine.
_KEPT = {"kind", "arch", "mcpu", "mtriple"}
# internal to TVM, not for users
_HIDDEN_OPTIONS = {"kind", "tag", "from_device", "target_device_type"}


def build_table() -> dict[str, Any]:
    """Return tags, options by target kind, and LLVM's CPU names by architecture."""
    for package in pkgutil.iter_modules(tvm.backend.__path__):
        if package.ispkg:
            load_backend(package.name)  # it brings its tags
    return {
        "tvm": tvm.__version__,
        "tags": {
            name: _smallest(to_plain(target.export()))
            for name, target in sorted(tvm.target.list_tags().items())
        },
        "options": {kind: _options(kind) for kind in _KINDS},
        "cpus": {triple.split("-", 1)[0]: _cpus(triple) for triple in _TRIPLES},
    }


def table_text() -> str:
    """Return the file's text."""
    return json.dumps(build_table(), indent=1, sort_keys=True) + "\n"


def _options(kind: str) -> dict[str, str]:
    options = _ffi_api.ListTargetKindOptionsFromName(kind)
    return {str(name): str(options[name]) for name in options if name not in _HIDDEN_OPTIONS}


def _cpus(triple: str) -> list[str]:
    target = Target({"kind": "llvm", "mtriple": triple})
    return sorted({str(name) for name in codegen.llvm_get_cpu_archlist(target)})


def _smallest(config: dict[str, Any]) -> dict[str, Any]:
    """Return a tag's attributes without those that TVM fills in."""
    smallest = {name: value for name, value in config.items() if not name.startswith("feature.")}
    if isinstance(smallest.get("host"), dict):
        smallest["host"] = _smallest(smallest["host"])
    complete = to_plain(Target(smallest).export())
    for name in sorted(smallest.keys() - _KEPT):
        fewer = {n: v for n, v in smallest.items() if n != name}
        if to_plain(Target(fewer).export()) == complete:
            smallest = fewer
    # a CPU that is its own host need not say so
    if smallest.get("host") == {n: v for n, v in smallest.items() if n != "host"}:
        del smallest["host"]
    return smallest


if __name__ == "__main__":
    TABLE_PATH.write_text(table_text(), encoding="utf-8")
