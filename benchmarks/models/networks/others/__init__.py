"""Twelve more networks, so that the compiler is not judged by the first eight alone.

Standard ones where there are such, at their published sizes or (where the module says so) smaller; seeded random weights. Not
all are new to the compiler: networks like six of them led to changes of it, which CHANGELOG.md and docs/adr/ (0027, 0029)
name: ResNeXt, ShuffleNetV2, a vision transformer, DeepLab, a CRNN and a GPT-2 block.
"""

from __future__ import annotations

from collections.abc import Callable

import onnx
from benchmarks.models.networks.others.convnext import build_convnext
from benchmarks.models.networks.others.crnn import build_crnn
from benchmarks.models.networks.others.deeplab_v3 import build_deeplab_v3
from benchmarks.models.networks.others.densenet121 import build_densenet121
from benchmarks.models.networks.others.espcn import build_espcn
from benchmarks.models.networks.others.mobilenet_v3 import build_mobilenet_v3_small
from benchmarks.models.networks.others.resnext import build_resnext
from benchmarks.models.networks.others.shufflenet_v2 import build_shufflenet_v2
from benchmarks.models.networks.others.squeezenet import build_squeezenet
from benchmarks.models.networks.others.transformers import build_gpt, build_vit
from benchmarks.models.networks.others.vgg11 import build_vgg11

BUILDERS: dict[str, Callable[[], onnx.ModelProto]] = {
    "squeezenet": build_squeezenet,
    "vgg11": build_vgg11,
    "densenet121": build_densenet121,
    "resnext": build_resnext,
    "shufflenet_v2": build_shufflenet_v2,
    "mobilenet_v3_small": build_mobilenet_v3_small,
    "vit": build_vit,
    "convnext": build_convnext,
    "deeplab_v3": build_deeplab_v3,
    "crnn": build_crnn,
    "gpt": build_gpt,
    "espcn": build_espcn,
}
