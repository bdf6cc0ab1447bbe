"""What is trained beside a frozen model: LoRA, prefixes; frozen weights in 8 and 4 bits."""
