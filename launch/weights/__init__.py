"""Weights and adapters of Hugging Face made ours, and ours theirs. No Paddle, no torch."""
