"""Which texts are left out."""
