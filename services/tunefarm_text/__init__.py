"""What every part of tunefarm says alike: quantities, and the terms of a job. It imports the standard library alone."""
