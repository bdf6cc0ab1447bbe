"""The page: plan a run, start it, watch it. It calls the functions that the commands call (docs/studio.md)."""
