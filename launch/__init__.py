"""Everything of paddle-llm-recipes that runs on devices: recipes, preflight, training, rehearsal."""
