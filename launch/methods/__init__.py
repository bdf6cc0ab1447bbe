"""The training methods: all that differs from one to the next, as data. No Paddle here."""
