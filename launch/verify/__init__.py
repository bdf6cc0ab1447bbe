"""What `make verify-gpu` compares: a run's own records with the plan for it. No Paddle here."""
