"""What the demos need beyond the commands of users."""
