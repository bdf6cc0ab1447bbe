"""Model families, named configurations and what follows from them by arithmetic. Pure data: no Paddle here."""
