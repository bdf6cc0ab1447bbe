"""Pages for users, and in docs/tools what writes their tables."""
