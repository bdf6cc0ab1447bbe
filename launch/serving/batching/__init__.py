"""Rows in a bounded queue, answered batch by batch in one thread."""
