"""Networks as people have them: those that published packages ship, and architectures of torchvision, timm and transformers."""
