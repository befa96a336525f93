"""Cost models: predict the speed of a config's kernel without building it.

`features.FEATURE_GROUPS` lists the features of a config (`nest_features`, `gpu_features`), `trial_data` has those of a task's trials and of
what is on record. `base` has the interface, `xgb` the model; `prior` predicts before the first trial (on GPUs: `gpu_prior`).
"""
