"""The data to train on."""
