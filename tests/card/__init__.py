"""The checks of `make certify`, with the mark `card`: launch/certify/certificate.py runs them. No Paddle at import."""
