"""Default schedules: rules schedule untuned kernels in milliseconds.

CPUs (`schedule`, rules in `cpu/`), in order:

1. `stage.inlined_schedule` computes cheap stages inside their consumers. A kernel that only transposes is written by
   `cpu.transposes.write_transpose`.
2. Otherwise the rules of `schedule.KERNEL_RULES` are tried in order; the first that schedules the kernel ends the search. The last
   of them schedules tiled reductions, which take other stages into their loops, and then tries `schedule.STAGE_RULES` on each
   stage alone.
3. The rewrites of `schedule.BODY_REWRITES` change the scheduled statements.

A rule is added by writing a function of the signature `KernelRule` or `StageRule`, listing it there, and raising
`workload.revisions.KERNEL_CODE`. Rules look at the loops and strides of a `stage.Stage`; they know no operator by name.

GPUs (`gpu`): the first DLight rule whose kernel is bound to threads, and else threads over the outer parallel loops.
"""
