"""A file of texts to a file of answers: streamed, told, and resumed."""
