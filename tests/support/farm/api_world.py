"""A farm with an instance of everything in the API, and the fields of a valid request to each operation."""

from __future__ import annotations

import io
import itertools
from dataclasses import dataclass, field
from typing import Any

import numpy as np
from app_farm import Farm
from sqlalchemy import text

from tunefarm_app.access.api_keys import create_api_key
from tunefarm_app.devices.commands import command_device
from tunefarm_app.devices.enrolment import create_enrolment_token, enrol_devices
from tunefarm_app.engines.replay import ReplayEngine
from tunefarm_app.engines.scenario import Scenario
from tunefarm_app.jobs.control import pause_job
from tunefarm_app.jobs.sweeps import SweepRequest, submit_sweep
from tunefarm_app.jobs.terms import JobTerms
from tunefarm_app.jobs.whole_budget import JobBudget
from tunefarm_app.models.samples import submit_samples
from tunefarm_app.models.uploads import begin_upload, end_upload, list_uploads
from tunefarm_app.records.kernel_sources import source_of
from tunefarm_app.storage.rows import engine_record
from tunefarm_db.states.device import DeviceEvent
from tunefarm_db.states.job import JobState
from tunefarm_db.values import AuditAction, Model, Upload
from tunefarm_tuning.core.outcome import Outcome
from tunefarm_tuning.measure.interfaces import Failure
from tunefarm_workers.device.tunnel.certificate import DeviceKey


@dataclass(frozen=True, kw_only=True)
class Good:
    """The fields that a valid request needs besides the documented example.

    Attributes:
        known: Values of path parameters and of members of the body, by name.
        body: The body, in place of the example.
        query: Parameters of the query.
        headers: Sent as well.
        key: Sent in place of the admin's.
    """

    known: dict[str, Any] = field(default_factory=dict)
    body: Any = None
    query: dict[str, Any] = field(default_factory=dict)
    headers: dict[str, str] = field(default_factory=dict)
    key: str | None = None


class World:
    """The farm, with a job that ended well, a webhook that was told, and more of each on demand."""

    def __init__(self, farm: Farm) -> None:
        self.farm = farm
        self._numbers = itertools.count(1)
        self.device = farm.add_device("node-1", "pool", by_gateway=bool(farm.services.settings.gateway))
        self.model = self.new_model()
        job = farm.submit(self.model, tuner="random")
        farm.run_until_quiet()
        assert farm.job(job.id).state is JobState.SUCCEEDED
        source_of(farm.services, job.id, 0, ask=True)
        farm.run_until_quiet()
        with farm.services.uow.write() as repos:
            workload = repos.jobs.tasks(job.id)[0].workload_key
            webhook = repos.webhooks.add(
                url="https://8.8.8.8/", kinds=["finished"], job_id=None, secret="whsec_eA=="
            )
            delivery = repos.deliveries.queue_test(webhook.id)
        self.keys: dict[str, str] = {
            scope: create_api_key(farm.services, name=scope, scopes=[scope])[1]
            for scope in ("read", "write", "device", "admin")
        }
        self.known = {
            "job_id": job.id,
            "model_id": self.model.id,
            "device_id": self.device.id,
            "device_key": "pool",
            "position": 0,
            "workload_key": workload,
            "webhook_id": webhook.id,
            "delivery_id": delivery.id,
            "upload_id": self._new_upload().id,
            "samples_id": self._new_samples(),
            "sweep_id": self._new_sweep(),
            "key_id": self.keys["read"].split("_")[1],
        }

    def new_model(self) -> Model:
        return self.farm.ready_model(Scenario(tasks=2, seed=next(self._numbers)))

    def good(self, operation: str) -> Good:
        """Return the fields of a valid request to the operation; create what it consumes."""
        make = getattr(self, f"_{operation}", None)
        return make() if make else Good()

    # Each is named as the operation that it is for.

    def _upload_model(self) -> Good:
        return Good(body=Scenario(seed=next(self._numbers)).to_bytes())

    def _certify(self) -> Good:
        registered = self.farm.newcomer("node-2", by_gateway=True)
        body = {"rpc_key": registered.rpc_key, "certificate_request": DeviceKey().request}
        return Good(known={"device_id": registered.id}, body=body)

    def _add_records(self) -> Good:
        with self.farm.services.uow.read() as repos:
            record = engine_record(repos.records.query(limit=1).items[0])
        return Good(body=f"{record.to_json()}\n".encode())

    def _get_workload_code(self) -> Good:
        return Good(query={"toolchain": self.farm.services.require_engine().toolchain})

    def _upload_samples(self) -> Good:
        return Good(body=self._samples())

    def _remove_samples(self) -> Good:
        return Good(known={"samples_id": self._new_samples()})

    def _samples(self) -> bytes:
        """Return a file of samples that nobody has sent before."""
        buffer = io.BytesIO()
        np.savez(buffer, x=np.full((1, 8), next(self._numbers), np.float32))
        return buffer.getvalue()

    def _new_samples(self) -> str:
        services = self.farm.services
        blob = services.blobs.put([self._samples()])
        return submit_samples(services, self.model.id, name="day.npz", blob=blob).samples.id

    def _begin_an_upload(self) -> Good:
        # A key can have so many of them, and all requests of a walk are of one.
        for upload in list_uploads(self.farm.services, api_key_id=self._admin_id, limit=200):
            if upload.id != self.known["upload_id"]:
                end_upload(self.farm.services, upload.id, api_key_id=self._admin_id)
        return Good(headers={"Upload-Length": "10"})

    def _send_part(self) -> Good:
        known = {"upload_id": self._new_upload().id}
        return Good(known=known, body=b"\x08\x01", headers={"Upload-Offset": "0"})

    def _remove_upload(self) -> Good:
        return Good(known={"upload_id": self._new_upload().id})

    @property
    def _admin_id(self) -> str:
        return self.keys["admin"].split("_")[1]

    def _new_upload(self) -> Upload:
        return begin_upload(self.farm.services, api_key_id=self._admin_id, name="net", size_bytes=10)

    def _remove_model(self) -> Good:
        return Good(known={"model_id": self.new_model().id})

    def _new_sweep(self) -> str:
        request = SweepRequest(model_ids=[self.model.id], terms=JobTerms(budget=JobBudget(trials=8)))
        return submit_sweep(self.farm.services, request).sweep.id

    def _create_sweep(self) -> Good:
        return Good(body={"model_ids": [self.model.id], "device_keys": ["pool"], "budget": {"trials": 8}})

    def _compare(self) -> Good:
        return Good(query={"job": [self.known["job_id"], self._submit()]})

    def _open_job(self) -> Good:
        return Good(known={"job_id": self._submit()})

    def _submit(self, pool: str = "pool") -> str:
        return self.farm.submit(self.model, tuner="random", device_key=pool).id

    _change = _stop_job = _pause = _open_job

    def _resume(self) -> Good:
        good = self._open_job()
        pause_job(self.farm.services, good.known["job_id"])
        return good

    def _retry(self) -> Good:
        self.farm.inbox.messages.clear()
        pool = (
            f"retry-{next(self._numbers)}"  # what is asked of the other devices may have put them out of work
        )
        self.farm.add_device(pool, pool)
        good = Good(known={"job_id": self._submit(pool)})
        self.farm.with_engine(ReplayEngine(_lost)).with_settings(max_step_attempts=1).run()
        assert self.farm.job(good.known["job_id"]).state is JobState.FAILED
        return good

    def _delete_device(self) -> Good:
        name = f"spare-{next(self._numbers)}"
        return Good(known={"device_id": self.farm.add_device(name, "spares").id})

    _drain_device = _quarantine_device = _delete_device

    def _release_device(self) -> Good:
        good = self._delete_device()
        command_device(self.farm.services, good.known["device_id"], DeviceEvent.DRAIN, "")
        return good

    def _add_device(self) -> Good:
        return Good(known={"device_key": "others"})

    def _enrol(self) -> Good:
        token = create_enrolment_token(self.farm.services)[1]
        return Good(known={"name": f"new-{next(self._numbers)}"}, key=token)

    def _renew(self) -> Good:
        services, name = self.farm.services, f"old-{next(self._numbers)}"
        token, _text = create_enrolment_token(services, device_key="pool", device_name=name)
        ((key, key_text),) = enrol_devices(services, token, names=[name], device_key="pool")
        with services.uow.engine.begin() as connection:
            connection.execute(text("UPDATE api_keys SET expires_at = NULL WHERE id = :id"), {"id": key.id})
        return Good(key=key_text)

    def _prune(self) -> Good:
        services = self.farm.services
        with services.uow.write() as repos:
            while repos.audit.seal():
                pass
            repos.audit.note(AuditAction.SIGNED_IN)
        with services.uow.engine.begin() as connection:
            connection.execute(text("UPDATE audit_inbox SET at = at - 86400 * 31"))
        with services.uow.write() as repos:
            repos.audit.seal()
        with services.uow.engine.begin() as connection:
            seq, digest = connection.execute(
                text("SELECT seq, hash FROM audit_log ORDER BY seq DESC LIMIT 1")
            ).one()
        return Good(body={"to": seq, "hash": digest})

    def _revoke_key(self) -> Good:
        key, _text = create_api_key(self.farm.services, name="spare", scopes=["read"])
        return Good(known={"key_id": key.id})

    def _add_webhook(self) -> Good:
        return Good(known={"url": "https://8.8.8.8/hook"})

    def _remove_webhook(self) -> Good:
        with self.farm.services.uow.write() as repos:
            webhook = repos.webhooks.add(url="https://8.8.8.8/", kinds=[], job_id=None, secret="whsec_eA==")
        return Good(known={"webhook_id": webhook.id})

    _disable = _remove_webhook


def _lost(*_args: object) -> Failure:
    return Failure(Outcome.INFRASTRUCTURE_ERROR, "the device is gone")
