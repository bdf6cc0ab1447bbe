"""What is tried, measured and watched beside the training itself."""
