"""``tunefarm.load``: run a tuned artifact. Needs ``apache-tvm`` and numpy, and nothing else of tunefarm."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from tunefarm_tuning.artifact.loader import LoadedArtifact


def load(path: Path | str) -> LoadedArtifact:
    """Load a ``.tunefarm`` file: an object to be called with one numpy array per input.

    ::

        tuned = tunefarm.load("model.tunefarm")
        outputs = tuned(x=numpy.zeros((1, 3, 224, 224), "float32"))

    An artifact is native code: load only those that come from people you trust.

    Raises:
        InvalidInputError: If the file is not an artifact, is damaged, or was made for another kind of machine.
        ImportError: If TVM is not installed.
    """
    from tunefarm_tuning.artifact.loader import load as load_artifact

    return load_artifact(path)
