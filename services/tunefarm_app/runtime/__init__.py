"""The base of every process of the farm: composition, dispatch, logs."""
