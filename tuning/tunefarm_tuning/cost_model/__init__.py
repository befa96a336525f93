"""Cost models: predict the speed of a config's kernel without building it.

`features.FEATURE_GROUPS` lists the features, `xgb` has the model, `prior` the predictions before the first trial.
"""
