"""Evaluation beyond the loss: answers, and the best model kept."""
