"""Fast training on a CPU: settings before Paddle is imported, replacements in the model after."""
