"""Runs on several machines: which of them this is, whether all are there and alike, whether all are still there."""
