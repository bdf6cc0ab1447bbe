"""What a model knows: log-likelihoods of answers and texts, and what is made of them."""
