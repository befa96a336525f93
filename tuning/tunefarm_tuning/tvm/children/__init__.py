"""The modules that run in child processes, with their parents. Only they import the modules that use TVM.

- `machine`: this machine as LLVM and CUDA see it (`target.parse`, the device agent).
- `import_network`: a model's outputs and tuning tasks (`frontend.importing`, `frontend.extraction`).
- `build`: config spaces, and kernels from configs (`measure.builder`); `source`: a config as text (`compiler.kernel_source`).
- `measure`: kernel timing (`measure.runner`); `calibrate`, `peak`: a device's speed (`measure.calibration`, `measure.peak`).
- `compile`: kernels and whole models (`compiler.session`); `run`: runs, compares and times both (`measure.device_run`).
- `artifact`: an artifact through its own loader (`compiler.evaluate`, `compiler.verify`).
- `evolutionary`: MetaSchedule's search (`tuner.evolutionary`); `interchange`: its databases (`records.metaschedule`).
- `local_rpc`, `sample_workloads`: for tests.

Every module has a table ``HANDLERS`` (`process.Handlers`) as its last statement. Its docstring lists them as
``name: parameters -> answer``; an answer is what the handler returns, as a JSON value.
"""
