"""Model files with a few changes that a stranger might make: of shapes, indices, attributes, lengths, graphs, files, opsets.

`mutant(seed)` is one such file, the same for the same seed. `python -m mutants --count 2000` takes many through the import, and
`tests/security/test_mutated_models.py` some.
"""

from __future__ import annotations

from mutants.draw import Mutant, mutant

__all__ = ["Mutant", "mutant"]
