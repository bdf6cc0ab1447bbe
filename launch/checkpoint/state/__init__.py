"""The state of a run on disk: written whole or not at all, verified, restored."""
