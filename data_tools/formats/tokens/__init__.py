"""Corpora of tokens: .bin/.idx, and the samples of fixed length that are cut from them."""
