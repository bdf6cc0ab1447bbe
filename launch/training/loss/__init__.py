"""Losses and gradient norms that are the same in every layout."""
