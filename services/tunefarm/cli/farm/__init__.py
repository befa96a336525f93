"""Commands that run or look after a farm."""
