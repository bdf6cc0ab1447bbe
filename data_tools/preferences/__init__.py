"""Preferences: prompts with responses of which one is better, or which are good or bad."""
