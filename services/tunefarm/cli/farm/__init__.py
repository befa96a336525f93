"""Commands that run or manage a farm."""
