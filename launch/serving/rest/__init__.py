"""REST, as clients of the OpenAI API speak it."""
