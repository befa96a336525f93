"""What a farm keeps of a model is made anew where the code that made it has changed since.

Each number is stored with what it is about; rows from before there were numbers have 0. Whoever changes what one of them
stands for adds one to it: workload keys do not tell, and a farm would go on with what an older release found.
"""

from __future__ import annotations

IMPORTER = 2
"""Which models can be imported. A model that an earlier one refused may be uploaded again."""

GRAPH_PASSES = 8
"""Which kernels a model has. Tasks that earlier passes found are not those that the compiler asks records for."""

SPACES = 3
"""Which configs a workload has. Those that a tuner asks for of an earlier space may apply to nothing."""
