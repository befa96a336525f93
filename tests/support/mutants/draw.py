"""A mutant by its seed."""

from __future__ import annotations

import contextlib
import random
from dataclasses import dataclass

import onnx_zoo
import tflite_zoo
from google.protobuf.message import DecodeError  # type: ignore[import-untyped]

from mutants.byte_changes import change_bytes
from mutants.onnx_model import CHANGES, WEIGHTS
from mutants.tflite_changes import changed_network
from mutants.values import Aims

_TFLITE_SHARE = 0.25
_BYTES_SHARE = 0.12
_COUNTS = (1, 1, 1, 1, 2, 3)
"""Of changes: most reach further if they are alone."""


@dataclass(frozen=True)
class Mutant:
    """A changed file.

    Attributes:
        seed: Which it is.
        network: Of the zoos, before the changes.
        changes: Their kinds.
        data: The file.
    """

    seed: int
    network: str
    changes: tuple[str, ...]
    data: bytes


def mutant(seed: int, aims: Aims = Aims()) -> Mutant:  # noqa: B008  (frozen)
    """Return a mutant: a small network of the zoos with one to three changes."""
    rng = random.Random(seed)
    count = rng.choice(_COUNTS)
    is_tflite = rng.random() < _TFLITE_SHARE
    if is_tflite:
        name = rng.choice(list(tflite_zoo.ZOO))
        data, kinds = changed_network(name, rng, count)
    else:
        name = rng.choice(onnx_zoo.names())
        opset = rng.choice(onnx_zoo.ways_of_writing(name))
        model = onnx_zoo.build(name, opset)
        name = f"{name}@{opset}"
        kinds = []
        while len(kinds) < count:
            kind = rng.choices(list(CHANGES), WEIGHTS)[0]
            with contextlib.suppress(DecodeError):  # nested deeper than protobuf copies
                if CHANGES[kind](model, rng, aims):
                    kinds.append(kind)
        data = model.SerializeToString()
    if rng.random() < _BYTES_SHARE:
        data, kind = change_bytes(data, rng, is_protobuf=not is_tflite)
        kinds.append(kind)
    return Mutant(seed, f"{'tflite' if is_tflite else 'onnx'}:{name}", tuple(kinds), data)
