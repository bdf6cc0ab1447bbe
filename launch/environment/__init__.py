"""The Python environment: making it, its lock and known clashes, the machine beneath. No Paddle."""
