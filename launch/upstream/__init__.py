"""Faults of Paddle and paddlenlp that are corrected here, one file each, and the means to do it narrowly."""
