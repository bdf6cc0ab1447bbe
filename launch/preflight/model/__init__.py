"""The model to start from: configuration, weights, tokenizer."""
