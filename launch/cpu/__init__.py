"""Fast training on a CPU: settings for the process (before Paddle is imported), replacements in the model (after)."""
