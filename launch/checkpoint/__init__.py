"""Reading and writing checkpoints."""
