"""A LoRA adapter and its base become one model directory, checked weight by weight and by logits."""
