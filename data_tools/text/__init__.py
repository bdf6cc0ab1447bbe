"""Text in files, read in blocks by several processes, and the tokenizers that encode it."""
