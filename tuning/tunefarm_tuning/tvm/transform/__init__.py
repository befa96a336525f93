"""Graph passes, and the pipeline that runs them in order.

`pipeline.load_relax` reads and prepares a network, by the passes that `passes.PASSES` lists; `load_entries` does so in several sets of
shapes, `load_open` for all sizes. `weights.storage` stores weights in fewer bytes afterwards.
"""
