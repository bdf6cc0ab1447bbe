"""`make certify`: numbered checks of all that only a card runs, with a report to send back. No Paddle at import."""
