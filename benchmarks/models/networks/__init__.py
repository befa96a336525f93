"""The networks of the benchmark: builders of ONNX models with seeded random weights.

`MEASURED` are the eight that are measured where none is named, `OTHERS` twelve more. Write them as files::

    python -m benchmarks.models.networks --write FOLDER                       # the eight
    python -m benchmarks.models.networks --write FOLDER squeezenet others     # by name, or all of the twelve
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from functools import partial
from pathlib import Path

import onnx
from benchmarks.models.networks.efficientnet_b0 import build_efficientnet_b0
from benchmarks.models.networks.encoder import build_encoder
from benchmarks.models.networks.graph import build_mobilenet_v2, build_resnet18, write_network
from benchmarks.models.networks.others import BUILDERS as OTHER_NETWORKS
from benchmarks.models.networks.resnet50 import build_resnet50
from benchmarks.models.networks.unet import build_unet

_EIGHT: dict[str, Callable[[], onnx.ModelProto]] = {
    "resnet18": build_resnet18,
    "resnet50": build_resnet50,
    "mobilenet_v2": build_mobilenet_v2,
    "efficientnet_b0": build_efficientnet_b0,
    "encoder4": partial(build_encoder, layers=4, hidden=256, heads=4, feed_forward=1024),
    "encoder12": partial(build_encoder, layers=12, hidden=768, heads=12, feed_forward=3072),
    "unet": build_unet,
    "resnet18_batch8": partial(build_resnet18, batch=8),
}

NETWORKS = _EIGHT | {"unet_resize": partial(build_unet, resize=True)} | OTHER_NETWORKS
"""By name. `unet_resize` is an extra: it is measured where it is asked for."""

MEASURED = tuple(_EIGHT)
OTHERS = tuple(OTHER_NETWORKS)

GROUPS = {"measured": MEASURED, "others": OTHERS}
"""Words for several networks, on command lines."""


def written_out(names: Iterable[str]) -> list[str]:
    """Return names with those of each of `GROUPS` in its place; none comes twice."""
    return list(dict.fromkeys(network for name in names for network in GROUPS.get(name, (name,))))


def network_file(name: str, folder: Path) -> Path:
    """Return the ONNX file of one of `NETWORKS` in a folder, written if it is not there; any other name is a file."""
    if name not in NETWORKS:
        return Path(name)
    path = folder / f"{name}.onnx"
    if not path.exists():
        folder.mkdir(parents=True, exist_ok=True)
        # Write the file atomically, so that a killed run leaves no partial network.
        write_network(NETWORKS[name](), path.with_suffix(".part")).replace(path)
    return path
