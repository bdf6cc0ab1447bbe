"""Text from models: answers to prompts in batches, as they come, and how good they are."""
