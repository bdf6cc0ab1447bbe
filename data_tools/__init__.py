"""Raw text to what training reads: tokenizer, .bin/.idx, checks."""
