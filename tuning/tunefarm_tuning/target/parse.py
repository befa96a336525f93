"""Parse a target as people write it. Imports no compiler: TVM's tags and options ship as a table."""

from __future__ import annotations

import difflib
import json
import re
import shlex
from collections.abc import Iterable, Mapping, Sequence
from functools import cache
from pathlib import Path
from typing import Any

from tunefarm_tuning.core.errors import UnknownTargetError
from tunefarm_tuning.core.untrusted_text import clean
from tunefarm_tuning.process.child import call_in_child
from tunefarm_tuning.process.limits import ChildLimits
from tunefarm_tuning.target.gpu import find_gpu, known_gpus, looks_like_gpu, target_limits
from tunefarm_tuning.target.target import LIBRARIES, Attribute, Target
from tunefarm_tuning.target.trimmed import kept_target, tvm_folder

KINDS = ("llvm", "cuda")
"""The kinds of targets that tunefarm tunes for. TVM has tags of other kinds (Metal, OpenCL, Hexagon); they are refused."""

_KNOWN_LIBRARIES = {"llvm": ("dnnl",)}
"""Libraries that tunefarm calls, by the target's kind, by TVM's names: oneDNN (`tvm.kernels.library_products`)."""
_OTHER_KINDS = {"c", "hexagon", "metal", "nvptx", "opencl", "rocm", "vulkan", "webgpu"}
_MAX_TEXT = 4096
_DETECT_TIMEOUT_SEC = 120.0
_CUDA_ARCH = re.compile(r"sm_\d{2,3}[a-z]?")
_WORD = re.compile(r"[A-Za-z0-9_][A-Za-z0-9_.+-]*")
"""A name as LLVM has them, and which cannot be a path: linkers are looked for by that of the machine."""
_WORDS = ("mtriple", "mabi", "mfloat-abi", "mcpu", "jit", "arch")
_COMPILER_OPTIONS = "cl-opt"
_MOST = {
    "num-cores": 4096,
    "opt-level": 3,
    "vector-width": 1 << 16,
    "l2_cache_size_bytes": 1 << 34,
    "max_num_threads": 1 << 16,
    "max_shared_memory_per_block": 1 << 24,
    "max_threads_per_block": 1 << 12,
    "registers_per_block": 1 << 20,
    "thread_warp_size": 128,
}
"""What no machine has more of, for each option that is a number."""


def parse_target(text: str | Mapping[str, Any] | Target) -> Target:
    """Read a target.

    Args:
        text: ``"host"``; ``"llvm -mcpu=znver4 -num-cores=8"`` (also with a space for the ``=``); ``"cuda/sm_90"`` or
            ``"llvm/znver4"``; one of TVM's tags (``"nvidia/nvidia-h100"``); a GPU's name (``"h200"``, ``"RTX 4090"``);
            JSON, or the dict it stands for; what `Target.key` gives.

    Raises:
        UnknownTargetError: If it is no target; the message lists the nearest targets.
    """
    if isinstance(text, Target):
        return text
    if isinstance(text, Mapping):
        return _from_config(text)
    stripped = text.strip()
    if not stripped or len(stripped) > _MAX_TEXT:
        raise UnknownTargetError(
            "a target is required: host, 'llvm -mcpu=NAME', cuda/sm_90, or one of TVM's tags"
        )
    if stripped == "host":
        return detect_host_target()
    if stripped.startswith("{"):
        try:
            return _from_config(json.loads(stripped))
        except (ValueError, RecursionError) as error:
            raise UnknownTargetError(
                f"the target starts like JSON, but is not valid JSON: {clean(str(error))}"
            ) from error
    if stripped in _table()["tags"]:
        return _from_config(_table()["tags"][stripped])
    kind, slash, name = stripped.partition("/")
    if slash and " " not in stripped and kind in KINDS:
        return _from_config({"kind": kind, "arch" if kind == "cuda" else "mcpu": name})
    if (gpu := find_gpu(stripped)) is not None:
        return _from_config(gpu)
    return _from_options(stripped)


def is_for_this_cpu(target: Target) -> bool:
    """Return whether this machine's CPU runs what is compiled for a target: whatever its number of cores, that is its own."""
    return _any_cores(target) == _any_cores(detect_host_target())


def _any_cores(target: Target) -> Target:
    return Target(
        kind=target.kind,
        attributes=tuple((name, value) for name, value in target.attributes if name != "num-cores"),
    )


@cache
def detect_host_target() -> Target:
    """Return this machine's target: LLVM's CPU name and the number of usable physical cores.

    Raises:
        UnknownTargetError: If TVM's compiler was removed (`trimmed`), and what it knew was of another machine.
    """
    if (kept := kept_target(tvm_folder())) is not None:
        return kept
    return Target.from_json(
        call_in_child(
            "tunefarm_tuning.tvm.children.machine",
            "host_target",
            {},
            limits=ChildLimits(),
            timeout_sec=_DETECT_TIMEOUT_SEC,
        )
    )


def _from_options(options: str) -> Target:
    try:
        words = shlex.split(options)
    except ValueError as error:
        raise UnknownTargetError(
            f"the target '{clean(options)}' cannot be split into words: {error}"
        ) from error
    kind = words[0] if words else ""
    if kind not in KINDS:
        raise _unknown(options)
    config: dict[str, Any] = {"kind": kind}
    remaining = list(words[1:])
    while remaining:
        word = remaining.pop(0)
        name, equals, value = word.lstrip("-").partition("=")
        if not word.startswith("-") or not name:
            raise UnknownTargetError(
                f"in target '{clean(options)}', '{clean(word)}' is not an option; write -name=value",
                word=clean(word),
            )
        if not equals:
            if not remaining:
                raise UnknownTargetError(f"in target '{clean(options)}', option -{clean(name)} has no value")
            value = remaining.pop(0)
        config[name] = _value_from_text(kind, name, value)
    return _from_config(config)


def _value_from_text(kind: str, name: str, value: str) -> Any:
    match _options(kind).get(name):
        case "int":
            return int(value) if re.fullmatch(r"-?\d{1,18}", value) else value
        case "bool":
            return {"true": True, "1": True, "false": False, "0": False}.get(value.lower(), value)
        case "Array<str>":
            return [part for part in value.split(",") if part]
        case "target.Target":
            return parse_target(value).to_json()
        case _:
            return value


def _from_config(config: Any) -> Target:
    """Check a dict in TVM's own form."""
    if not isinstance(config, Mapping) or not isinstance(config.get("kind"), str):
        raise UnknownTargetError('a target in JSON is an object with a "kind", for example {"kind": "llvm"}')
    kind = config["kind"]
    if kind not in KINDS:
        raise _unsupported(kind)
    attributes: dict[str, Any] = {
        n: _checked(kind, n, v) for n, v in config.items() if n not in ("kind", "tag")
    }
    if kind == "cuda":
        if not isinstance(attributes.get("arch"), str) or not _CUDA_ARCH.fullmatch(attributes["arch"]):
            arch = clean(str(attributes.get("arch", "")), 40)
            raise UnknownTargetError(
                f"a cuda target needs its architecture as sm_NN, for example cuda/sm_90 (found: {arch or 'none'})"
            )
        attributes = {**target_limits(attributes["arch"]), **attributes}
    else:
        _check_cpu(attributes.get("mcpu"), attributes.get("mtriple"))
    return Target.from_json({"kind": kind, **attributes})


def _checked(kind: str, name: str, value: Any) -> Any:
    options = _options(kind)
    if name not in options:
        near = difflib.get_close_matches(name, options, n=3, cutoff=0.5)
        raise UnknownTargetError(
            f"{kind} targets have no option '{clean(name, 40)}'" + _did_you_mean([f"-{n}" for n in near]),
            option=clean(name, 40),
            nearest=near,
        )
    if name == _COMPILER_OPTIONS:
        raise UnknownTargetError(
            f"option -{name} passes options to LLVM itself, which may write files: tunefarm refuses them",
            option=name,
        )
    expected = options[name]
    if expected == "target.Target":
        return _from_config(value).to_json()
    fits = {
        "int": isinstance(value, int) and not isinstance(value, bool) and value > 0,
        "bool": isinstance(value, bool),
        "str": isinstance(value, str) and bool(value) and value.isprintable(),
        "Array<str>": isinstance(value, Sequence)
        and not isinstance(value, str)
        and all(isinstance(item, str) and item.isprintable() and "," not in item for item in value),
    }.get(expected, False)
    if not fits:
        wanted = {"int": "a whole number above zero", "bool": "true or false", "str": "text"}.get(
            expected, "a list"
        )
        raise UnknownTargetError(
            f"option -{name} of a {kind} target must be {wanted}, but is '{clean(str(value), 40)}'",
            option=name,
        )
    _check_value(kind, name, value)
    return list(value) if expected == "Array<str>" else value


def _check_value(kind: str, name: str, value: Any) -> None:
    """Refuse what is of the right type, but no value of this option."""
    if name == LIBRARIES:
        _check_libraries(kind, value)
    if name in _WORDS and not _WORD.fullmatch(value):
        raise UnknownTargetError(
            f"option -{name} of a {kind} target is a name of letters, digits, and _ . + -, but is '{clean(value, 40)}'",
            option=name,
        )
    if name in _MOST and value > _MOST[name]:
        raise UnknownTargetError(
            f"option -{name} of a {kind} target must be at most {_MOST[name]}, but is {clean(str(value), 40)}",
            option=name,
        )


def _check_libraries(kind: str, names: Sequence[str]) -> None:
    known = _KNOWN_LIBRARIES.get(kind, ())
    unknown = [clean(name, 40) for name in names if name not in known]
    if unknown:
        can = (
            f"the libraries of {kind} targets are {', '.join(known)}" if known else f"{kind} targets use none"
        )
        raise UnknownTargetError(
            f"option -libs names {', '.join(unknown)}, which tunefarm cannot use: {can}", option=LIBRARIES
        )


def _check_cpu(cpu: Attribute | None, triple: Attribute | None) -> None:
    """Refuse a CPU name that LLVM does not know; TVM would silently compile for a generic CPU."""
    if cpu is None or cpu == "generic":
        return
    known: dict[str, list[str]] = _table()["cpus"]
    architecture = str(triple).split("-", 1)[0] if triple else ""
    if triple and architecture not in known:
        return  # an architecture that the table does not cover
    names = known[architecture] if triple else sorted({name for names in known.values() for name in names})
    if cpu not in names:
        near = _alike(str(cpu), names, n=5)
        where = f" for {clean(architecture, 40)}" if triple else ""
        raise UnknownTargetError(
            f"LLVM does not know the CPU '{clean(str(cpu), 60)}'{where}"
            + _did_you_mean([f"-mcpu={n}" for n in near]),
            nearest=near,
        )


def _unknown(target: str) -> UnknownTargetError:
    word = target.split(maxsplit=1)[0].lower()
    if word in _OTHER_KINDS:
        return _unsupported(word)
    names = [*_table()["tags"], "host", *KINDS, *(f"cuda/sm_{n}" for n in (75, 80, 86, 89, 90))]
    cpus = {cpu: f"llvm -mcpu={cpu}" for listed in _table()["cpus"].values() for cpu in listed}
    last_parts = {name.rsplit("/", 1)[-1]: name for name in names}  # people often omit a tag's vendor
    near = [name for name in names if name.endswith(word)]
    near += [last_parts[part] for part in _alike(word, last_parts, n=3)]
    near += [name for name in names if word in name]
    near += [cpus.get(name, name) for name in _alike(word, [*names, *cpus], n=5)]
    nearest = list(dict.fromkeys(near))[:5]
    forms = "a target is host, 'llvm -mcpu=NAME -num-cores=N', cuda/sm_NN, JSON, a GPU's name, or one of TVM's tags"
    if looks_like_gpu(target):
        forms = (
            "for a GPU that is not listed, give the architecture (cuda/sm_NN); known GPUs are "
            f"{', '.join(known_gpus())}"
        )
    return UnknownTargetError(
        f"unknown target '{clean(target, 60)}'{_did_you_mean(nearest) or ';'} {forms}", nearest=nearest
    )


def _unsupported(kind: str) -> UnknownTargetError:
    return UnknownTargetError(
        f"tunefarm cannot tune for targets of kind '{clean(kind, 40)}', only for {' and '.join(KINDS)}",
        code="unsupported-target",
        kind=clean(kind, 40),
    )


def _alike(word: str, names: Iterable[str], *, n: int) -> list[str]:
    """Return the names that `word` may be a misspelling of: similar, and with the same first letter."""
    candidates = [name for name in names if name[:1] == word[:1]]
    return difflib.get_close_matches(word, candidates, n=n, cutoff=0.6)


def _did_you_mean(nearest: Sequence[str]) -> str:
    return f"; did you mean {', '.join(nearest)}?" if nearest else ""


def _options(kind: str) -> dict[str, str]:
    options: dict[str, str] = _table()["options"][kind]
    return options


@cache
def _table() -> dict[str, Any]:
    """Return what `tvm/base/dump_target_tags.py` wrote."""
    table: dict[str, Any] = json.loads(
        (Path(__file__).parent / "target_tags.json").read_text(encoding="utf-8")
    )
    return table
