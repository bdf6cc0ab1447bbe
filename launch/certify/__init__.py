"""`make certify`: the report of the tests in tests/card, and their tools. No Paddle at import."""
