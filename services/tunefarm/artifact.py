"""``tunefarm.load``: run a tuned artifact. Needs ``apache-tvm`` and numpy, and nothing else of tunefarm."""

from __future__ import annotations

import os
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from tunefarm_tuning.artifact.loader import TunedModel


def load(path: str | os.PathLike[str], *, threads: int | None = None) -> TunedModel:
    """Load a ``.tunefarm`` file: an object to be called with one numpy array per input, by position or by name.

    ::

        tuned = tunefarm.load("model.tunefarm")
        outputs = tuned(x=numpy.zeros((1, 3, 224, 224), "float32"))  # a dict of arrays by name

    An artifact is native code: load only those that come from people you trust.

    Args:
        path: The artifact.
        threads: How many threads its kernels run on; where it is left out, as many as it was tuned for, and no more than there
            are cores to use. Another number is a `ThreadsWarning`.

    Raises:
        ArtifactError: If the file is not an artifact, is damaged, or was made for another machine or version.
        ImportError: If TVM is not installed.
    """
    from tunefarm_tuning.artifact.loader import load as load_artifact

    return load_artifact(path, threads=threads)
