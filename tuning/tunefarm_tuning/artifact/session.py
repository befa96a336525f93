"""``InferenceSession``: an artifact with the interface of ONNX Runtime's session, so that one line has to change to try it.

This file is also inside every artifact, for `loader.py` there. Needs Python 3.11, apache-tvm and numpy.

It behaves as ONNX Runtime does, with three differences: an error is an `ArtifactInputError` (a `ValueError`) or an
`ArtifactError`; shapes are those that the model was compiled for (`TunedModel.shapes`); of the session's options only
``intra_op_num_threads`` has an effect. There is no I/O binding: each call allocates its outputs.
"""

from __future__ import annotations

import os
import warnings
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

import numpy as np

if TYPE_CHECKING:
    from numpy.typing import NDArray

if __package__:
    from tunefarm_tuning.artifact.arrays import ArtifactInputError, listed, numpy_dtype
    from tunefarm_tuning.artifact.model import load
else:  # beside this file, in the zip
    from tunefarm_arrays import (  # type: ignore[import-not-found,no-redef]
        ArtifactInputError,
        listed,
        numpy_dtype,
    )
    from tunefarm_model import load  # type: ignore[import-not-found,no-redef]

PROVIDER = "TunefarmExecutionProvider"
_TYPES = {"float32": "float", "float64": "double"}


@dataclass(frozen=True, slots=True, kw_only=True)
class NodeArg:
    """An input or output; `type` is as ONNX Runtime writes it: ``"tensor(float)"``. An open dimension of an output is None."""

    name: str
    shape: list[int | str | None]
    type: str


@dataclass(frozen=True, slots=True, kw_only=True)
class ModelMetadata:
    """A model's metadata, as far as an artifact has them."""

    graph_name: str
    producer_name: str = "tunefarm"
    domain: str = ""
    description: str = ""
    graph_description: str = ""
    version: int = 0
    custom_metadata_map: dict[str, str] = field(default_factory=dict)


class InferenceSession:
    """Runs an artifact as ``onnxruntime.InferenceSession`` runs a model. Concurrency: as `TunedModel`.

    Attributes:
        model: The loaded artifact.
    """

    def __init__(
        self,
        path_or_bytes: str | os.PathLike[str],
        sess_options: Any = None,
        providers: Sequence[Any] | None = None,
        provider_options: Sequence[Mapping[str, Any]] | None = None,  # noqa: ARG002
        *,
        verify_key: str | os.PathLike[str] | None = None,
    ) -> None:
        """Load an artifact.

        Args:
            path_or_bytes: The ``.tunefarm`` file; it must be a path.
            sess_options: An ``onnxruntime.SessionOptions``, or any object with ``intra_op_num_threads``; 0 is the artifact's own.
            providers: Ignored, with a warning if the artifact was compiled for another device.
            provider_options: Ignored.
            verify_key: File of public keys that the artifact is verified with, as in `load`.

        Raises:
            ArtifactError: As `load` does.
        """
        if not isinstance(path_or_bytes, str | os.PathLike):
            raise ArtifactInputError(
                f"an artifact is loaded from its path, not from {type(path_or_bytes).__name__}"
            )
        threads = getattr(sess_options, "intra_op_num_threads", 0) or None
        self.model = load(path_or_bytes, threads=threads, verify_key=verify_key)
        kind = self.model.manifest["target"]["kind"]
        requested = [provider if isinstance(provider, str) else provider[0] for provider in providers or ()]
        fits = (PROVIDER, "CUDAExecutionProvider" if kind == "cuda" else "CPUExecutionProvider")
        if requested and not any(provider in fits for provider in requested):
            warnings.warn(
                f"the artifact is compiled for {self.model.manifest['target_key']} and runs there, not "
                f"on {', '.join(requested)}",
                UserWarning,
                stacklevel=2,
            )
        self._inputs = {spec["name"]: spec for spec in self.model.inputs}

    def run(
        self,
        output_names: Sequence[str] | None,
        input_feed: Mapping[str, Any],
        run_options: Any = None,  # noqa: ARG002
    ) -> list[NDArray[Any]]:
        """Run the model; return the named outputs in that order, all outputs if none is named.

        Args:
            output_names: Names of outputs; None or empty for all.
            input_feed: The inputs by name: numpy arrays, lists, or arrays of a library that supports DLPack.
            run_options: Ignored.

        Raises:
            ArtifactInputError: If an input is missing, unknown, or of another shape or dtype; or an output is unknown.
            TypeError: If `output_names` is a string.
        """
        if isinstance(output_names, str):
            raise TypeError(f"output_names is a list of names, not {output_names!r}")
        outputs = self.model.run(
            {
                name: value if type(value) is np.ndarray else self._value(name, value)
                for name, value in input_feed.items()
            }
        )
        if not output_names:
            return list(outputs.values())
        if unknown := [name for name in output_names if name not in outputs]:
            raise ArtifactInputError(
                f"there is no output {unknown[0]!r}; the model has {listed(self.model.outputs)}"
            )
        returned: set[str] = set()
        results = []
        for name in output_names:
            results.append(outputs[name].copy() if name in returned else outputs[name])
            returned.add(name)
        return results

    def get_inputs(self) -> list[NodeArg]:
        """Return the inputs, in order; a dimension of several sizes has a name in place of its size."""
        return self._nodes("inputs", self.model.inputs)

    def get_outputs(self) -> list[NodeArg]:
        """Return the outputs, in order; see `get_inputs`."""
        return self._nodes("outputs", self.model.outputs)

    def get_overridable_initializers(self) -> list[NodeArg]:
        """Return an empty list: weights are compiled in."""
        return []

    def get_providers(self) -> list[str]:
        """Return the name of tunefarm's own provider."""
        return [PROVIDER]

    def get_modelmeta(self) -> ModelMetadata:
        """Return the model's name, and facts from the manifest."""
        manifest = self.model.manifest
        known = {key: manifest.get(key) for key in ("target_key", "device_model", "threads", "created_at")}
        known["sha256"] = (manifest.get("model") or {}).get("sha256")
        return ModelMetadata(
            graph_name=str(manifest.get("name") or ""),
            custom_metadata_map={key: str(value) for key, value in known.items() if value is not None},
        )

    def _nodes(self, kind: str, specs: Sequence[Mapping[str, Any]]) -> list[NodeArg]:
        table = self.model.shape_table
        return [_node(spec, table.open_shape(kind, number)) for number, spec in enumerate(specs)]

    def _value(self, name: str, value: Any) -> Any:
        spec = self._inputs.get(name)
        if spec is not None and isinstance(value, list):  # ONNX Runtime makes it what the model takes
            try:
                return np.asarray(value, numpy_dtype(spec["dtype"]))
            except (ValueError, TypeError) as error:
                raise ArtifactInputError(f"input {name!r} is not an array: {error}") from error
        if not isinstance(value, np.ndarray) and (
            isinstance(value, np.generic) or not hasattr(value, "__dlpack__")
        ):
            raise ArtifactInputError(f"input {name!r} is {type(value).__name__}, not an array")
        return value


def _node(spec: Mapping[str, Any], shape: list[int | str | None]) -> NodeArg:
    return NodeArg(
        name=spec["name"],
        shape=shape,
        type=f"tensor({_TYPES.get(spec['dtype'], spec['dtype'])})",
    )
