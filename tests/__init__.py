"""Tests; a package so that a process of its own can import a test's functions by name (tests/ranks.py)."""
