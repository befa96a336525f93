"""Running a step, and the steps that do not tune."""
