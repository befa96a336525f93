"""MetaSchedule's design spaces as config spaces, and configs as schedules.

`design_space.DesignSpace` is the entry. In order, it

1. has MetaSchedule make sketches of the workload (`cuda_space` says with which rules on a GPU; `instruction_blocks` puts a CPU's
   dot product instruction into it first),
2. reads each sketch's trace: how it tiles the main block (`sketch_tiling`) and shares tiles out on a GPU (`cuda_tiling`),
3. makes one knob of each sampling instruction, and one for the threads of a small workload (`knobs`); on CPUs, tiles may
   leave a tail where no good tile divides a loop (`tail_tiles`),
4. applies configs: puts their decisions into the trace, runs it on the workload, and post-processes the result.
"""
