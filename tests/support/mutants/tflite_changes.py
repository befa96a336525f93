"""Changes of a TFLite file, as it is written and afterwards."""

from __future__ import annotations

import random
import struct
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import numpy as np
import tflite_zoo
from tflite_writer import _TYPES, TfliteWriter

from mutants.values import FLOATS, SIZES, near32

_HEAD_WORDS = 2


def _change_shape(net: Any, rng: random.Random) -> bool:
    tensor = rng.choice(net._tensors)
    shape = tensor["shape"]
    if shape and rng.random() < 0.7:
        index = rng.randrange(len(shape))
        shape[index] = near32(rng, shape[index])
    else:
        shape.extend(rng.choice((1, 2, 1 << 30)) for _ in range(rng.choice((1, 4, 300))))
    if rng.random() < 0.3:
        tensor["signature"] = [-1] * len(shape)
    return True


def _change_weight(net: Any, rng: random.Random) -> bool:
    tensor = rng.choice(net._tensors)
    kind = rng.randrange(4)
    if kind == 0:
        tensor["dtype"] = rng.choice(list(_TYPES))
    elif kind == 1:
        tensor["buffer"] = rng.choice((0, len(net._buffers) - 1, len(net._buffers), (1 << 32) - 1))
    elif kind == 2:
        tensor["scale"] = np.array([rng.choice(FLOATS)] * rng.choice((1, 2, 77)), np.float32)
        tensor["zero"] = np.array([rng.choice((0, 1 << 62, -129))], np.int64)
        tensor["axis"] = rng.choice((0, -1, 3, 99))
    else:
        index = rng.randrange(len(net._buffers))
        net._buffers[index] = net._buffers[index][: rng.randrange(len(net._buffers[index]) + 1)]
    return True


def _change_index(net: Any, rng: random.Random) -> bool:
    """Set a number of a constant of integers."""
    constants = [t["buffer"] for t in net._tensors if t["dtype"] in ("int32", "int64") and t["buffer"]]
    if not constants:
        return False
    buffer = rng.choice(constants)
    data = bytearray(net._buffers[buffer] if buffer < len(net._buffers) else b"")
    if len(data) < 4:
        return False
    at = 4 * rng.randrange(len(data) // 4)
    struct.pack_into("<i", data, at, near32(rng, struct.unpack_from("<i", data, at)[0]))
    net._buffers[buffer] = bytes(data)
    return True


def _change_operator(net: Any, rng: random.Random) -> bool:
    """Change an operator's kind, attributes, inputs or outputs."""
    if not net._operators:
        return False
    operator = rng.choice(net._operators)
    kind = rng.randrange(5)
    edges = operator[rng.choice(("inputs", "outputs"))]
    if kind == 0 and edges:
        edges[rng.randrange(len(edges))] = near32(rng, rng.randrange(len(net._tensors)))
    elif kind == 1:
        operator["code"] = rng.choice((0, len(net._codes) - 1, len(net._codes), 1 << 20))
    elif kind == 2:
        edges.extend([0] * rng.choice((1, 2000)))
    elif kind == 3:
        del edges[rng.randrange(len(edges) + 1) :]
    else:
        return _change_field(operator["fields"], rng)
    return True


def _change_field(fields: dict[str, Any], rng: random.Random) -> bool:
    numbers = [
        name for name, value in fields.items() if isinstance(value, int) and not isinstance(value, bool)
    ]
    if not numbers:
        return False
    fields[rng.choice(numbers)] = rng.choice((0, 1, 2, 3, 7, 100))
    return True


_WRITTEN = {
    "shape": _change_shape,
    "weight": _change_weight,
    "index": _change_index,
    "attribute": _change_operator,
}


def changed_network(name: str, rng: random.Random, count: int) -> tuple[bytes, list[str]]:
    """Write a network of the zoo with some changes; return it and what they are."""
    kinds: list[str] = []
    with _changing(rng, count, kinds):
        try:
            data = tflite_zoo.ZOO[name]().data
        except (struct.error, TypeError, AttributeError, ValueError, OverflowError, IndexError):
            # What the writer cannot write
            kinds.clear()
            data = b""
    if not data:
        data = tflite_zoo.ZOO[name]().data
    if not kinds or rng.random() < 0.3:
        data = change_words(data, rng)
        kinds.append("words")
    return data, kinds


@contextmanager
def _changing(rng: random.Random, count: int, kinds: list[str]) -> Iterator[None]:
    """Change every file that is written in the block, just before."""
    write = TfliteWriter.data

    def data(self: TfliteWriter, outputs: Any) -> bytes:
        for _ in range(count):
            kind = rng.choice(list(_WRITTEN))
            if self._tensors and _WRITTEN[kind](self, rng):
                kinds.append(kind)
        return write(self, outputs)

    TfliteWriter.data = data  # type: ignore[method-assign]
    try:
        yield
    finally:
        TfliteWriter.data = write  # type: ignore[method-assign]


def change_words(data: bytes, rng: random.Random) -> bytes:
    """Change some aligned words: in this format, nearly all offsets, lengths, sizes and indices."""
    changed = bytearray(data)
    for _ in range(rng.choice((1, 2, 5))):
        at = 4 * rng.randrange(_HEAD_WORDS, len(changed) // 4)
        value = struct.unpack_from("<i", changed, at)[0]
        struct.pack_into("<i", changed, at, near32(rng, rng.choice((value, rng.choice(SIZES[:6])))))
    return bytes(changed)
