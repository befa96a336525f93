"""What every process of the farm runs on: composition, dispatch, logs."""
