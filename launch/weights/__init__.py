"""Weights of other libraries made ours: Hugging Face directories in. No Paddle, no torch."""
