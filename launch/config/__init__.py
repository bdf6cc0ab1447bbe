"""What a run is asked to do: flags and their schema, older names, the layout of processes, the global batch."""
