"""Benchmarks of questions and texts, in the files in which they are published."""
