"""What a run does: flags and their schema, older names, the layout of processes, the global batch."""
