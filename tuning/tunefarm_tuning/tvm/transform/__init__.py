"""Graph passes, and the pipeline that runs them in order."""
