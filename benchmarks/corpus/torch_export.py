"""Export an architecture with random weights through `torch.export` and `import_torch`, and print what came of it as JSON.

python -m benchmarks.corpus.torch_export timm resnet18 --shape 1 3 224 224 --output resnet18.onnx
python -m benchmarks.corpus.torch_export transformers "bert num_hidden_layers=2" --shape 1 128 --output bert.onnx
"""

from __future__ import annotations

import argparse
import inspect
import json
import sys
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from benchmarks.corpus.listing import ARCHITECTURE_LIBRARIES

from tunefarm_tuning import import_torch
from tunefarm_tuning.core.errors import InvalidInputError, TunefarmError

# The operators that torchvision's compiled part registers. Its wheels are built for CUDA, and where only PyTorch for CPUs is
# installed, torchvision imports if these exist. No architecture of the corpus calls one.
TORCHVISION_OPERATORS = (
    "nms", "qnms", "roi_align", "_roi_align_backward", "qroi_align", "roi_pool", "_roi_pool_backward", "ps_roi_align",
    "_ps_roi_align_backward", "ps_roi_pool", "_ps_roi_pool_backward", "deform_conv2d", "_deform_conv2d_backward",
)  # fmt: skip
_declared: list[Any] = []
"""The library of the declared operators, which PyTorch forgets with the object."""


def main(arguments: Sequence[str] | None = None) -> int:
    """Export an architecture; the last line printed has ``code`` (empty on success) and ``message``."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("library", choices=ARCHITECTURE_LIBRARIES)
    parser.add_argument("name", help="of transformers: a type of models, and settings of its configuration")
    parser.add_argument("--shape", type=int, nargs="+", required=True)
    parser.add_argument("--output", type=Path, required=True)
    options = parser.parse_args(arguments)
    answer = {"code": "", "message": ""}
    try:
        export(options.library, options.name, options.shape, options.output)
    except TunefarmError as error:
        answer = {"code": error.code, "message": error.message}
    except Exception as error:
        answer = {"code": "bad-program", "message": f"{type(error).__name__}: {error}"}
    print(json.dumps(answer))
    return 1 if answer["code"] else 0


def export(library: str, name: str, shape: Sequence[int], output: Path) -> None:
    """Write an architecture's ONNX file.

    Raises:
        TunefarmError: If PyTorch or the library is not installed, or `import_torch` refuses the program.
    """
    try:
        import torch

        torch.manual_seed(0)
        if library == "transformers":
            module, inputs = _transformer(torch, name, shape)
        else:
            module, inputs = _module(torch, library, name), (torch.randn(*shape),)
    except ModuleNotFoundError as error:
        raise InvalidInputError(f"{error.name} is not installed", code="not-installed") from error
    program = torch.export.export(module.eval(), inputs)
    import_torch(program, output)


def _transformer(torch: Any, name: str, shape: Sequence[int]) -> tuple[Any, tuple[Any, ...]]:
    """Return a model whose result is the last layer's output, and its input: ids for a model that reads them."""
    import transformers

    kind, *settings = name.split()
    options = {key: json.loads(value) for key, value in (setting.split("=") for setting in settings)}
    config = transformers.AutoConfig.for_model(kind, **options)
    model = transformers.AutoModel.from_config(config)
    if hasattr(model, "encoder") and getattr(config, "is_encoder_decoder", False):
        model = model.encoder

    class LastLayer(torch.nn.Module):  # type: ignore[misc]
        def __init__(self) -> None:
            super().__init__()
            self.model = model

        def forward(self, given: Any) -> Any:
            return self.model(given).last_hidden_state

    reads_ids = model.main_input_name == "input_ids"
    given = torch.randint(0, config.vocab_size, tuple(shape)) if reads_ids else torch.randn(*shape)
    return LastLayer(), (given,)


def _module(torch: Any, library: str, name: str) -> Any:
    _import_torchvision(torch)
    if library == "timm":
        import timm

        return timm.create_model(name, pretrained=False)
    from torchvision import models

    # Otherwise segmentation's backbones are downloaded.
    parameters = inspect.signature(models.get_model_builder(name)).parameters
    without = {key: None for key in ("weights", "weights_backbone") if key in parameters}
    return models.get_model(name, **without)


def _import_torchvision(torch: Any) -> None:
    """Import torchvision, which timm needs too; without its compiled part, if that cannot be loaded."""
    try:
        import torchvision
    except RuntimeError:
        for module in [name for name in sys.modules if name.partition(".")[0] == "torchvision"]:
            del sys.modules[module]
        _declared.append(torch.library.Library("torchvision", "FRAGMENT"))
        for operator in TORCHVISION_OPERATORS:
            _declared[0].define(f"{operator}(Tensor input) -> Tensor")
        import torchvision  # noqa: F401


if __name__ == "__main__":
    sys.exit(main())
