"""Quantised models: the networks that jobs of precision int8 compile."""

from __future__ import annotations

from sqlalchemy import delete, select

from tunefarm_db.repositories.base import Repository
from tunefarm_db.tables import QuantisedModelRow, table_of
from tunefarm_db.tables.columns import db_now
from tunefarm_db.values import Json, QuantisedModel

_QUANTISED = table_of(QuantisedModelRow)


class QuantisedModels(Repository):
    """Quantised forms of models, each for one choice of samples and accuracy."""

    def find(self, model_id: str, terms: str) -> QuantisedModel | None:
        """Return the model's quantised form for these terms."""
        query = select(_QUANTISED).where(
            QuantisedModelRow.model_id == model_id, QuantisedModelRow.terms == terms
        )
        return self._first(QuantisedModel, query)

    def store(self, model_id: str, terms: str, *, sha256: str, quantisation: Json) -> None:
        """Store a quantised form, whose blob must be in `Blobs` already; an earlier one of the same terms is replaced."""
        row = {"sha256": sha256, "quantisation": quantisation, "created_at": db_now()}
        statement = self._insert(_QUANTISED).values(model_id=model_id, terms=terms, **row)
        self._run(statement.on_conflict_do_update(index_elements=["model_id", "terms"], set_=row))

    def delete_of_model(self, model_id: str) -> list[str]:
        """Delete the quantised forms of a model; return the hashes of their blobs."""
        query = select(QuantisedModelRow.sha256).where(QuantisedModelRow.model_id == model_id)
        hashes = [str(sha256) for sha256 in self._run(query).scalars()]
        self._run(delete(_QUANTISED).where(QuantisedModelRow.model_id == model_id))
        return hashes
