"""Measurement: building candidates, timing them on a device, calibration and peaks of devices.

- Candidates of a search: `builder.BUILDERS` and `runner.RUNNERS` list the back ends; `interfaces` has their interfaces, `kernel_timing`
  says how long a kernel is timed.
- Networks and checks of a compile: `device_run` calls a `device` (`device_functions`; `session_parts` runs what ONNX Runtime runs of a
  network), `timing_blocks` times networks side by side, `baselines` and `gpu.baseline` other runtimes beside them. `machine_watch` and
  `gpu.state` say what disturbed a timing.
- What a device can do: `calibration`, `peak`, `roofline`; `away` tells a device that is gone from one that fails.
"""
