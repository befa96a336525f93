"""MetaSchedule's design spaces as config spaces."""
