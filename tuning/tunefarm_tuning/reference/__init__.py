"""What a network's right answer is: reference runs, random inputs, comparison."""
