"""What launch/commands/guide.py prints: what to change in which order to save memory, and what sharding costs."""
