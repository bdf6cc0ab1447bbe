"""What cards are there and what they may do. No Paddle."""
