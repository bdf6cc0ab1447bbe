"""The one owner of the files that training reads: .bin/.idx and what is cut from them. No Paddle here."""
