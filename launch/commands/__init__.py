"""Commands that no recipe starts; each is a file that answers --help."""
