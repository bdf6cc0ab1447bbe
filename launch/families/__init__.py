"""The model families: what each is, can do and lacks, and its named configurations. No Paddle here."""
