"""Dialogues: rows of JSON, chat templates, and the samples of which the answers count."""
