"""The one owner of the files that training reads: .bin/.idx corpora and what is cut from them. No Paddle here."""
