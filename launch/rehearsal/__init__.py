"""What lets the same recipe, with the same flags and processes, run on a CPU. Never used on GPUs."""
