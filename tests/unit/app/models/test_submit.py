from __future__ import annotations

import pytest
from sqlalchemy import text

from tunefarm_app.engines.replay import ReplayEngine
from tunefarm_app.engines.scenario import Scenario
from tunefarm_app.models.removal import delete_model
from tunefarm_app.models.submit import bind_model, check_shapes, check_values, submit_model
from tunefarm_app.storage.blob_store import StoredBlob
from tunefarm_convert import check_head
from tunefarm_db.acting import Acting, act_as
from tunefarm_db.values import AuditAction, Model, ModelState
from tunefarm_tuning.core.errors import ConflictError, InvalidInputError, InvalidModelError, NotFoundError


def test_the_same_bytes_and_shapes_are_one_model(farm) -> None:
    first = farm.upload(Scenario(), name="a.onnx")
    again = farm.services.blobs.put([Scenario().to_bytes()])
    second = submit_model(farm.services, name="b.onnx", blob=again)
    assert second.model.id == first.id
    assert not second.created
    assert farm.upload(Scenario(), x=[1, 8]).id != first.id
    assert len(farm.inbox.messages) == 2  # one import each, none for the repetition


@pytest.mark.parametrize(
    ("data", "code", "words"),
    [
        (b"", "empty-file", "empty"),
        (b"PK\x03\x04rest", "not-protobuf", "zip"),
        (b"\x80\x02}q", "not-protobuf", "pickle"),
        (b"<!DOCTYPE html>", "not-protobuf", "web page"),
        (b'{"a": 1}', "not-protobuf", "JSON"),
        (b"module @jit_f {", "not-protobuf", "StableHLO; tunefarm models convert"),
        (b"hello", "not-protobuf", "its first bytes do not fit"),
        (b"\x08\x08\x12\x06", "truncated-model", "cut off after 4 bytes, 6 bytes or more are missing"),
    ],
)
def test_files_that_are_no_onnx_are_refused_and_leave_nothing(farm, data, code, words) -> None:
    with pytest.raises(InvalidModelError, match=words) as caught:
        farm.upload(data)
    assert caught.value.code == code
    assert list(farm.services.blobs.older_than(0)) == []
    with farm.services.uow.read() as repos:
        assert repos.models.list().items == ()
    assert farm.inbox.messages == []


def test_heads_of_real_models_are_let_through() -> None:
    for first in (0x08, 0x12, 0x3A, 0x42):
        check_head(bytes([first, 1]))
    check_head(b"\x1c\x00\x00\x00TFL3")


@pytest.mark.parametrize("shape", [[0], [-1, 2], [1 << 40], [True], [1.5]])
def test_bad_shapes_are_refused(shape) -> None:
    with pytest.raises(InvalidInputError) as caught:
        check_shapes({"x": shape})
    assert caught.value.code == "bad-shape"


@pytest.mark.parametrize("value", ["fast", float("nan"), [], [[1], [1, 2]], 1 << 70])
def test_bad_values_are_refused(value) -> None:
    with pytest.raises(InvalidInputError) as caught:
        check_values({"sr": value})
    assert caught.value.code == "bad-value"


def test_a_bad_model_fails_with_its_error_and_is_not_tried_again(farm) -> None:
    model = farm.upload(b"\x08not a scenario")
    assert farm.run() == 1
    model = farm.model(model.id)
    assert model.state is ModelState.FAILED
    assert model.error["code"] == "invalid-onnx"
    assert farm.upload(b"\x08not a scenario").id == model.id  # uploading it again changes nothing
    assert farm.inbox.messages == []


def test_an_import_that_may_have_been_bad_luck_is_repeated_by_uploading_again(farm) -> None:
    class Crashing(ReplayEngine):
        def import_model(self, *args, **kwargs):
            raise InvalidModelError("importing crashed", code="import-crashed")

    model = farm.upload(Scenario())
    assert farm.with_engine(Crashing()).run() == 1
    assert farm.model(model.id).error["code"] == "import-crashed"
    again = farm.upload(Scenario())
    assert again.id == model.id
    assert again.state is ModelState.IMPORTING
    farm.run()
    assert farm.model(model.id).state is ModelState.READY


def test_what_an_older_release_refused_is_imported_again(farm) -> None:
    class Older(ReplayEngine):
        def import_model(self, *args, **kwargs):
            raise InvalidModelError("no such operator", code="unsupported-operator")

    model = farm.upload(Scenario())
    assert farm.with_engine(Older()).run() == 1
    assert farm.upload(Scenario()).state is ModelState.FAILED  # this release's word
    with farm.services.uow.engine.begin() as connection:
        connection.execute(text("UPDATE models SET revision = 0"))
    assert farm.upload(Scenario()).id == model.id
    farm.run()
    assert farm.model(model.id).state is ModelState.READY


def test_a_name_is_cleaned(farm) -> None:
    assert "\x1b" not in farm.upload(Scenario(), name="\x1b[31mred\n").name


def test_a_blob_that_was_swept_meanwhile_is_no_model(farm) -> None:
    blob = StoredBlob(sha256="0" * 64, size_bytes=3, head=b"\x08", created=True)
    with pytest.raises(NotFoundError):
        submit_model(farm.services, name="x", blob=blob)
    with farm.services.uow.read() as repos:
        assert repos.models.list().items == ()


def test_delete(farm) -> None:
    model = farm.ready_model()
    farm.add_device()
    job = farm.submit(model)
    with pytest.raises(ConflictError) as caught:
        delete_model(farm.services, model.id)
    assert caught.value.code == "model-in-use"
    assert caught.value.fields["job_ids"] == [job.id]
    farm.run()
    assert delete_model(farm.services, model.id).state is ModelState.DELETED
    with pytest.raises(NotFoundError) as gone:
        delete_model(farm.services, model.id)
    assert gone.value.code == "model-deleted"
    assert farm.upload(Scenario()).id != model.id  # the same bytes are a new model then


def test_delete_during_import(farm) -> None:
    model = farm.upload(Scenario())
    delete_model(farm.services, model.id)
    farm.run()
    assert farm.model(model.id).state is ModelState.DELETED


def test_the_bytes_of_a_model_that_failed_go_at_once(farm) -> None:
    data = b"\x08\x07garbage that is no scenario"
    for _ in range(2):  # the second upload finds the failed model
        model = farm.upload(data)
        farm.run()
        assert farm.model(model.id).state is ModelState.FAILED
        assert list(farm.services.blobs.older_than(0)) == []


def test_the_bytes_stay_while_another_model_needs_them(farm) -> None:
    from tunefarm_app.models.removal import remove_unreferenced

    model = farm.ready_model()
    assert not remove_unreferenced(farm.services, model.sha256)
    assert farm.services.blobs.path(model.sha256).is_file()


def fail(farm, model, code: str) -> None:
    """Let the import of a model fail, as an engine would."""
    with farm.services.uow.write() as repos:
        repos.steps.cancel_open(subject_id=model.id)
        repos.models.set_failed(model.id, {"code": code, "message": "no"})


def test_a_file_is_bound_without_another_upload(farm) -> None:
    model = farm.upload(Scenario(tasks=1).to_bytes())
    fail(farm, model, "unknown-dimension")
    with pytest.raises(InvalidInputError) as caught:
        bind_model(farm.services, model.id, shapes={"x": "1,"}, values={})
    assert caught.value.code == "bad-shape"
    submitted = bind_model(farm.services, model.id, shapes={"x": [1, 8]}, values={"sr": 16000})
    assert submitted.created
    assert (submitted.model.name, submitted.model.shapes, submitted.model.values) == (
        model.name,
        {"x": [1, 8]},
        {"sr": 16000},
    )
    assert farm.model(model.id).state is ModelState.DELETED, "the new model takes its place"
    with farm.services.uow.write() as repos:
        repos.audit.seal()
        entry = repos.audit.page(action=AuditAction.MODEL_DELETED, limit=1).items[0]
    assert (entry.subject, entry.details) == (model.id, {"replaced_by": submitted.model.id})
    farm.run()
    assert farm.model(submitted.model.id).state is ModelState.READY
    other = bind_model(farm.services, submitted.model.id, shapes={"x": [2, 8]}, values={})
    assert farm.model(submitted.model.id).state is ModelState.READY, "a model that works stays"
    assert not bind_model(farm.services, other.model.id, shapes={"x": [2, 8]}, values={}).created


def test_another_upload_takes_the_place_of_those_with_shapes_that_did_not_fit(farm) -> None:
    def upload(size: int, *, fails: bool) -> Model:
        model = farm.upload(Scenario(tasks=1), x=[1, size])
        if fails:
            fail(farm, model, "bad-shape")
        farm.run()
        return farm.model(model.id)

    wrong = upload(1, fails=True)
    right = upload(2, fails=False)
    assert (right.state, right.version) == (ModelState.READY, wrong.version)
    assert farm.model(wrong.id).state is ModelState.DELETED
    later = [upload(3, fails=True), upload(4, fails=True)]
    assert [model.version for model in later] == [2, 2], "the second one replaced the first"
    newest = upload(5, fails=False)
    assert newest.version == 2, "the newest version of the name"
    assert [farm.model(model.id).state for model in later] == [ModelState.DELETED] * 2
    assert farm.model(right.id) == right


def test_an_upload_takes_no_other_owners_place_and_the_audit_log_says_whose_it_takes(farm) -> None:
    def upload(size: int, owner: str) -> Model:
        with act_as(Acting(via="api", owner=owner)):
            model = farm.upload(Scenario(tasks=1), x=[1, size])
        fail(farm, model, "bad-shape")
        farm.run()
        return farm.model(model.id)

    first, other = upload(1, "a"), upload(2, "b")
    assert farm.model(first.id).state is ModelState.FAILED
    second = upload(3, "a")
    assert farm.model(first.id).state is ModelState.DELETED
    assert farm.model(other.id).state is ModelState.FAILED
    with farm.services.uow.engine.begin() as connection:
        noted = connection.execute(
            text("SELECT subject, details FROM audit_inbox WHERE action = 'model-deleted'")
        )
        ((subject, details),) = noted
    assert subject == first.id
    assert second.id in str(details)


def test_a_file_that_is_not_kept_cannot_be_bound(farm) -> None:
    model = farm.upload(b"\x08not a scenario")
    farm.run()
    with pytest.raises(NotFoundError) as caught:
        bind_model(farm.services, model.id, shapes={"x": [1]}, values={})
    assert caught.value.code == "blob-not-found"
