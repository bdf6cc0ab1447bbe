"""Models in use: loaded with their adapter, on one process or several, answering prompts."""
