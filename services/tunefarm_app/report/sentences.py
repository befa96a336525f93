"""The sentences of a report: the result, its caveats, and what was not measured."""

from __future__ import annotations

from tunefarm_app.report.document import JobReport, ReportBreakdown
from tunefarm_app.report.hybrid import hybrid_sentence
from tunefarm_app.report.precision_sections import ReportPrecision, ReportStored
from tunefarm_app.report.sections import (
    ReportBaseline,
    ReportChecks,
    ReportDisturbance,
    ReportLatency,
    ReportRatio,
    ReportTiming,
)
from tunefarm_db.states.job import JobState
from tunefarm_text import quantities
from tunefarm_text.algorithms import WINOGRAD
from tunefarm_text.coverage_words import NOT_TRIED
from tunefarm_text.quantities import error, plural, seconds, signed_percent, size
from tunefarm_tuning.records.coverage import MissReason
from tunefarm_tuning.workload.precision import Precision

_ROUGH = 0.5
"""A latency with at least this spread is called rough."""
_WITHOUT_RECORD = (NOT_TRIED, MissReason.NO_RECORD.value)
_LARGER = 1.3
"""The size of an artifact is explained from so many times that of the model's file."""


def summary(report: JobReport) -> list[str]:
    """Return the sentences that summarise the job's result."""
    sentences = [_end(report)]
    if report.simulated:
        sentences.append("This farm runs in simulation: all measurements below are synthetic.")
    if report.latency is not None:
        sentences += _latency(report.latency)
    if report.hybrid is not None:
        sentences.append(hybrid_sentence(report.hybrid))
    if report.checks is not None:
        sentences.append(
            f"The largest difference from ONNX Runtime's outputs is {error(report.checks.max_abs_error)}, or "
            f"{error(report.checks.max_rel_error)} of the output's root mean square, on {_inputs_of(report.checks)}; all outputs are "
            f"{'within' if report.checks.ok else 'NOT within'} the tolerance."
        )
    if report.precision is not None and report.precision.weights is not None:
        sentences.append(_precision(report.precision, report.precision.weights))
    if report.coverage is not None:
        sentences.append(
            f"{report.coverage.covered} of {plural(report.coverage.tasks, 'tuning task')} "
            f"{'runs' if report.coverage.covered == 1 else 'run'} a tuned kernel."
        )
    return [*sentences, *_size(report)]


def _size(report: JobReport) -> list[str]:
    """Return why the artifact is much larger than the model's file."""
    transformed = [
        each for each in report.alternatives if each.chosen and each.algorithm.startswith(WINOGRAD)
    ]
    if report.artifact is None or report.artifact.size_bytes < _LARGER * report.model.size_bytes:
        return []
    sizes = f"The artifact has {size(report.artifact.size_bytes)}, the model's file {size(report.model.size_bytes)}"
    if transformed:
        kernels = plural(len(transformed), "kernel")
        return [
            f"{sizes}: it holds the weights of {kernels} as Winograd's algorithm takes them, which is up to four times their size."
        ]
    return [
        f"{sizes}: beside the weights, in the forms that its kernels read, it holds native code and what runs it."
    ]


def _inputs_of(checks: ReportChecks) -> str:
    """Return what the outputs were compared on."""
    if checks.samples is None:
        return "random inputs"
    used = sum(len(file.used) for file in checks.samples.files)
    sets = sum(file.sets for file in checks.samples.files)
    of_all = f"{used} of {plural(sets, 'sample set')}" if used < sets else plural(sets, "sample set")
    is_alone = all(input_set.sample is not None for input_set in checks.input_sets)
    return f"the user's samples ({of_all}){' only' if is_alone else ' and on random inputs'}"


def _precision(precision: ReportPrecision, weights: ReportStored) -> str:
    verb = (
        "multiplied"
        if precision.name in (Precision.BFLOAT16, Precision.FLOAT16, Precision.INT8)
        else "stored"
    )
    stored = (
        f"{plural(weights.stored, 'large weight')} of {weights.stored + weights.kept} "
        f"{'is' if weights.stored == 1 else 'are'} {verb} as {precision.name}, in {size(weights.bytes_after)} instead of "
        f"{size(weights.bytes_before)}"
    )
    if precision.accuracy is None:
        return f"{stored}."
    off, plain = precision.accuracy.stored, precision.accuracy.as_model
    without = (
        ""
        if plain is None
        else f"; without it {error(plain.mean_rel_error)} and {error(plain.max_rel_error)}"
    )
    return (
        f"{stored}: outputs then differ by {error(off.mean_rel_error)} of their root mean square on "
        f"average, and by {error(off.max_rel_error)} at most{without}."
    )


def _end(report: JobReport) -> str:
    trials = f"{plural(report.job.trials, 'trial')}, {report.job.failures} of them failed"
    searched = f"{seconds(report.job.tuned_sec)} of search ({trials})"
    if report.job.stop_reason == "no-search":
        searched = "a compile from what was on record, without a search"
    if report.job.state is JobState.SUCCEEDED:
        return f"The job succeeded: one artifact after {searched}."
    if report.job.state is JobState.CANCELLED:
        return f"The job was cancelled after {searched}. There is no artifact."
    reason = str((report.job.error or {}).get("message") or "no reason was given")
    return f"The job failed after {searched}: {reason}. There is no artifact."


def _latency(latency: ReportLatency) -> list[str]:
    tuned = f"{seconds(latency.tuned.median_sec)} per inference"
    if latency.tuned_is_untuned:
        sentences = [f"The artifact has no tuned kernel: it takes {tuned}, like the untuned network."]
    else:
        than = f"untuned TVM ({seconds(latency.untuned.median_sec)})"
        sentences = [f"The artifact takes {tuned}, {_against(latency.ratios['untuned'], than)}."]
    if latency.onnxruntime is None:
        sentences.append(f"It was not compared with ONNX Runtime's latency: {latency.onnxruntime_missing}.")
    else:
        than = f"ONNX Runtime on the same device ({seconds(latency.onnxruntime.median_sec)})"
        sentences.append(f"It is {_against(latency.ratios['onnxruntime'], than)}.")
    for name, baseline in latency.baselines.items():
        if baseline.timing is None:
            continue
        than = f"{baseline.title} on the same device ({seconds(baseline.timing.median_sec)})"
        sentences.append(f"It is {_against(latency.ratios[name], than)}{_how_far_off(baseline)}.")
    if latency.torch_compile is not None:
        than = f"PyTorch's torch.compile on this device ({seconds(latency.torch_compile.median_sec)})"
        sentences.append(f"It is {_against(latency.ratios['torch_compile'], than)}.")
    return sentences


def _how_far_off(baseline: ReportBaseline) -> str:
    """Return how far a baseline's outputs are off, where it computes something else; else an empty text."""
    if baseline.checks is None or baseline.checks.ok:
        return ""
    off = f"{error(baseline.checks.mean_rel_error)} of their root mean square on average, {error(baseline.checks.max_rel_error)} at most"
    return f"; its outputs are further off than the artifact's may be ({off})"


def _against(ratio: ReportRatio, than: str) -> str:
    """Return how fast the artifact is, and whether the timings can tell it from the other network at all."""
    if not quantities.is_known(ratio.low, ratio.high):
        return f"not comparable with {than} by these timings: other work disturbed them unequally"
    slower = "slower: " if ratio.verdict == "slower" else ""
    unclear = ": the timings do not tell the two apart" if ratio.verdict == "same" else ""
    return f"{slower}{ratio.text} as fast as {than}{unclear}"


def caveats(report: JobReport) -> list[str]:
    """Return why the latencies and the times of kernels may be off."""
    return [*rough_latencies(report.latency), *exceeding_kernels(report.breakdown, report.latency)]


def rough_latencies(latency: ReportLatency | None) -> list[str]:
    """Return why it is not known better how much faster the artifact is."""
    if latency is None:
        return []
    again = "Measure again on a quiet device"
    wide = [ratio for ratio in latency.ratios.values() if quantities.is_wide(ratio.low, ratio.high)]
    disturbance = latency.tuned.disturbance
    if disturbance is not None:
        if not wide:
            return []
        return [f"The speed-up of the artifact is known only roughly: {_other_work(disturbance)}. {again}."]
    named = {
        "the artifact": latency.tuned,
        **{latency.title(name): timing for name, timing in latency.others().items()},
    }
    rough = [
        f"{signed_percent(timing.spread)} ({name})"
        for name, timing in named.items()
        if timing and timing.spread > _ROUGH
    ]
    if not rough:
        return []
    return [f"These latencies are rough: samples vary by {' and '.join(rough)} of their median. {again}."]


def _other_work(disturbance: ReportDisturbance) -> str:
    """Return what other work did to a timing, as far as that is known."""
    if disturbance.others_cores is None:
        return "the samples vary"
    dropped, fastest = disturbance.dropped, disturbance.of_fastest
    if dropped:
        verb = "does" if dropped == 1 else "do"
        counted = f", and {plural(dropped, 'timing')} of {disturbance.blocks} {verb} not count"
        counted += ", of the others only the fastest inferences" if fastest else ""
    else:
        counted = ", and only the fastest inferences count" if fastest else ""
    return f"other work took {quantities.figures(disturbance.others_cores)} cores on average{counted}"


def exceeding_kernels(parts: ReportBreakdown | None, latency: ReportLatency | None) -> list[str]:
    """Return that the kernels took longer alone than the network, if they did."""
    if parts is None or latency is None or not (parts.exceeds_before or parts.exceeds_after):
        return []
    which, alone_sec, whole_sec, known = (
        ("The artifact's", parts.kernels_after_sec, latency.tuned.median_sec, parts.shares_after_known)
        if parts.exceeds_after
        else (
            "The untuned",
            parts.kernels_before_sec,
            latency.untuned.median_sec,
            parts.shares_before_known,
        )
    )
    shares = (
        "Shares are of the kernels' sum."
        if known
        else f"Shares are not known, because {plural(parts.untimed, 'kernel')} of {parts.untimed + parts.timed} "
        f"{'was' if parts.untimed == 1 else 'were'} not timed."
    )
    sentence = (
        f"{which} kernels that were timed took {seconds(alone_sec)} alone, longer than the network ({seconds(whole_sec)}): other work "
        f"disturbed their timing. {shares}"
    )
    return [sentence]


def not_measured(report: JobReport) -> list[str]:
    """Return the parts of the report that have no figures, and why."""
    sentences = []
    if report.artifact is None:
        sentences.append("Latency, outputs and single kernels: there is no artifact.")
    latency = report.latency
    if latency is not None:
        threads = latency.tuned.threads
        sentences.append(
            "Other shapes, batch sizes and numbers of threads than these"
            + (f" ({plural(threads, 'thread')})." if threads else ".")
        )
        if latency.onnxruntime is None:
            sentences.append(f"ONNX Runtime's latency: {latency.onnxruntime_missing}.")
        sentences += [
            f"{baseline.title}'s latency: {baseline.missing}."
            for baseline in latency.baselines.values()
            if baseline.missing
        ]
        if latency.torch_compile_missing:
            sentences.append(f"The latency of PyTorch's torch.compile: {latency.torch_compile_missing}.")
        sentences += [
            f"The spread of {name}: there is only one sample, since an inference takes long."
            for name, timing in (
                *((latency.title(other), timing) for other, timing in latency.others().items()),
                ("the untuned network", latency.untuned),
            )
            if _is_single(timing)
        ]
    if report.breakdown is not None and report.breakdown.not_timed:
        sentences += _not_timed(report, report.breakdown.not_timed)
    once = [kernel.name for kernel in report.kernels if _is_single(kernel.untuned)]
    if once:
        sentences.append(
            f"The spread of {plural(len(once), 'untuned kernel')}: called only once, because it is much slower than the "
            "tuned form, or has no tuned form."
        )
    if report.checks is not None and report.checks.samples is None:
        sentences.append("Accuracy on real data: outputs were compared only on random inputs.")
    elif report.checks is not None:
        sentences.append("Accuracy against labels: outputs on samples were compared with ONNX Runtime's.")
    if report.artifact is not None:
        sentences += [
            "Loading, the first inference, memory, energy, and concurrent inferences.",
            "Transfer of inputs to the device and of outputs back.",
            "Other frameworks and compilers.",
            _other_programs(report.latency),
        ]
    return sentences


def _not_timed(report: JobReport, count: int) -> list[str]:
    without = sum(
        kernel.reason in _WITHOUT_RECORD and (kernel.before_sec is None or kernel.after_sec is None)
        for kernel in report.kernels
    )
    whys = {
        "without a record there is no tuned form to compare": without,
        f"the checks had no time left, or {'it' if count - without == 1 else 'they'} cannot run alone": count
        - without,
    }
    return [
        f"{plural(number, 'kernel')} alone: {why}. {'Its time is' if number == 1 else 'Their times are'} in the remainder."
        for why, number in whys.items()
        if number > 0
    ]


def _other_programs(latency: ReportLatency | None) -> str:
    """Return when the farm did not see what else the device ran."""
    disturbance = None if latency is None else latency.tuned.disturbance
    when = (
        "while single kernels were timed: only the timing of the whole network watches them"
        if disturbance is not None and disturbance.others_cores is not None
        else "while it was timed: it does not tell what else it runs"
    )
    return f"Other programs on the device {when}."


def _is_single(timing: ReportTiming | None) -> bool:
    return timing is not None and len(timing.samples_sec) == 1
