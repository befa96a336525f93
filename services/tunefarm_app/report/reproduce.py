"""Steps to repeat a job: commands, seeds, versions, and expected differences."""

from __future__ import annotations

import shlex
from typing import Literal

from tunefarm_app.models.samples import sample_ids
from tunefarm_app.report.document import ReportReproduce, ReportStep
from tunefarm_app.report.evidence import Evidence
from tunefarm_app.storage.file_names import file_end, file_stem
from tunefarm_app.storage.job_options import (
    EXPECTED,
    OWN_LIMIT,
    PREPARED,
    baselines_of,
    max_error_of,
    own_wall_sec,
    precision_of,
    searches,
    wants_other_shapes,
)
from tunefarm_db.values import Artifact, Job, Model
from tunefarm_text.bindings import value_texts
from tunefarm_text.job_terms import API_LIMITS
from tunefarm_tuning.core.untrusted_text import clean
from tunefarm_tuning.target.target import Target
from tunefarm_tuning.workload.precision import Precision

_OPTIONS = {limit: f"--{name.replace('_', '-')}" for name, limit in API_LIMITS.items()}
"""Options of the command, by the limits of a budget."""

_NAMED_BY_THE_COMMAND = (
    "precision",
    "max_error",
    "samples",
    "other_shapes",
    "baselines",
    "search",
    "of",
    "sweep",
    EXPECTED,
    PREPARED,
    OWN_LIMIT,
)
"""Options of a job that the command repeats, and what is none of the command's."""


def reproduce(
    job: Job, model: Model, artifact: Artifact | None, evidence: Evidence, *, end: str | None = None
) -> ReportReproduce:
    """Return the steps and their caveats; `end` is the end of the file's name (``.tflite``), None by the model's name."""
    file = f"{file_stem(model.name)}{end or file_end(model.name)}"
    steps = [_step("The tuned file, with this SHA-256.", "text", f"{model.sha256}  {file}")]
    if versions := evidence.texts("versions"):
        python = versions.get("python", "")
        pins = "\n".join(f"{name}=={version}" for name, version in versions.items() if name != "python")
        steps.append(
            _step(f"The versions that made the artifact, for pip or uv, on Python {python}.", "text", pins)
        )
    steps.append(
        _step(
            f"The same search (seed {job.seed}), in a farm with a device of the same model."
            if searches(job)
            else "The same compile, in a farm with the same records and a device of the same model.",
            "sh",
            _command(job, model, file),
        )
    )
    if artifact is not None:
        steps += _from_artifact(job, model, artifact, evidence, file)
    return ReportReproduce(steps=steps, caveats=_caveats(job, artifact))


def _command(job: Job, model: Model, file: str) -> str:
    words = ["tunefarm", "tune" if searches(job) else "compile", file]
    words += ["--target", _target_of(job), "--device-key", job.device_key]
    for name, option in _OPTIONS.items():
        limit = own_wall_sec(job) if name == "wall_sec" else job.budget.get(name)
        if limit is not None:
            words += [option, f"{limit:.10g}"]
    if searches(job):
        words += ["--tuner", job.tuner, "--seed", str(job.seed)]
    if (precision := precision_of(job)) is not Precision.AS_MODEL:
        words += ["--precision", precision.value]
    if (max_error := max_error_of(job)) is not None:
        words += ["--max-error", f"{max_error:.10g}"]
    if not wants_other_shapes(job):
        words.append("--no-other-shapes")
    if baselines := baselines_of(job):
        words += ["--baselines", ",".join(baselines)]
    for name, shape in model.shapes.items():
        text = shape if isinstance(shape, str) else ",".join(map(str, shape))
        words += ["--shape", f"{name}={text}"]
    for value in value_texts(model.values):
        words += ["--value", value]
    for number, _ in enumerate(sample_ids(job.options)):
        words += ["--inputs", f"samples-{number}.npz"]
    return shlex.join(clean(word, 500) for word in words)


def _target_of(job: Job) -> str:
    """Return a job's target with the libraries that may compute kernels: they are in no record's key."""
    return Target.from_json(job.target).key if job.target else job.target_key


def _from_artifact(
    job: Job, model: Model, artifact: Artifact, evidence: Evidence, file: str
) -> list[ReportStep]:
    shapes = f", shapes={model.shapes!r}" if model.shapes else ""
    values = f", values={model.values!r}" if model.values else ""
    imported = f"import_model({file!r}{shapes}{values})"
    names, quantised, quantising = "import_model", "", ""
    if precision_of(job) is Precision.INT8:
        samples = [f"samples-{number}.npz" for number, _ in enumerate(sample_ids(job.options))]
        limit = f", max_error={max_error_of(job)!r}" if max_error_of(job) is not None else ""
        names, quantised = "import_model, quantise_model", "quantised"
        quantising = f"quantised = quantise_model({imported}, {samples!r}, 'int8.onnx'{limit})\n"
    target = clean(_target_of(job), 500)
    use = evidence.place()
    seed = use.seed if use else 0
    threads = ["--threads", str(use.threads)] if use else []
    precision = precision_of(job)
    stored = "" if precision.of_network is Precision.AS_MODEL else f", precision={precision.value!r}"
    if max_error_of(job) is not None and not quantised:
        stored += f", max_error={max_error_of(job)!r}"
    options = stored if wants_other_shapes(job) else f"{stored}, other_shapes=False"
    if baselines_of(job):
        options += f", baselines={','.join(baselines_of(job))!r}"
    records = f"unzip {shlex.quote(artifact.name)} records.jsonl"
    return [
        _step(f"The artifact's records, from {artifact.name}.", "sh", records),
        _step(
            f"The same kernels from those records, checked and timed again (seed {seed}).",
            "python",
            f"from tunefarm_tuning import apply_history_best, compile, {names}\n\n{quantising}"
            "with apply_history_best('records.jsonl'):\n"
            f"    again = compile({quantised or imported}, {target!r}, output='again.tunefarm', seed={seed}{options})\n"
            "print(again.report['latency'])",
        ),
        _step(
            "The artifact's outputs against ONNX Runtime's, on other inputs.",
            "python",
            f"from tunefarm_tuning import {names}, verify\n\n{quantising}"
            f"print(verify({artifact.name!r}, {quantised or imported}, seed={seed + 100}))",
        ),
        _step("Its latency.", "sh", shlex.join(["tunefarm", "run", artifact.name, "--time", *threads])),
    ]


def _caveats(job: Job, artifact: Artifact | None) -> list[str]:
    caveats = ["The compile uses the best records that the farm has at that time."]
    if searches(job):
        caveats = [
            "The search depends on its timings: if a timing differs, the same seed tries other candidates.",
            "The search starts from the records of its farm.",
        ]
    if sample_ids(job.options):
        caveats.append("The samples are not in the artifact: the comparison on them needs their files.")
    if job.budget.get("wall_sec") is not None or job.budget.get("min_gain_per_min") is not None:
        caveats.append("A search with a time limit does more trials on a faster machine.")
    if others := sorted(
        (name, value) for name, value in job.options.items() if name not in _NAMED_BY_THE_COMMAND
    ):
        options = ", ".join(f"{name} = {value}" for name, value in others)
        caveats.append(f"The command uses the server's defaults; this job had {clean(options, 300)}.")
    if artifact is not None:
        caveats.append(
            "With the same versions and device model, the records give the same kernels. Their timings vary "
            "like the samples above, and a kernel about as fast as its untuned form may be rejected or "
            "accepted instead."
        )
    return caveats


def _step(what: str, language: Literal["sh", "python", "text"], code: str) -> ReportStep:
    return ReportStep(what=what, language=language, code=code)
