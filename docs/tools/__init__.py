"""What writes tables and translated parts of pages, and the list of messages to translate."""
