"""What is done to a network's weights at compile time: folding, pre-packing, storing in fewer bytes."""
