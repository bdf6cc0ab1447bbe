"""What a run tells: at its start, at each logging step, at its end; and how that is read back."""
