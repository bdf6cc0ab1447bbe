"""The Python environment: making it (setup.py), its lock, its known clashes, the machine beneath it. No Paddle."""
