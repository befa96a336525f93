"""Networks tuned for a GPU, beside PyTorch on the same GPU; and what needs a GPU to be proved."""
