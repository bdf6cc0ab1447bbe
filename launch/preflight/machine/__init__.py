"""What this machine has: packages, cards, disk, ports."""
