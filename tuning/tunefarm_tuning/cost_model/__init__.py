"""Cost models: they predict how fast a config's kernel is, without building it.

`features.FEATURE_GROUPS` lists the features, `xgb` has the model, `prior` what is known before the first trial.
"""
