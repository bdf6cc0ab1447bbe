"""What a run prints and records: at its start, at each logging step, at its end; and how that is read back."""
