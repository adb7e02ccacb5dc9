"""A trained model at work: text in, answers out."""
