"""A training's checkpoints: when and how they are saved, which one a run continues from."""
