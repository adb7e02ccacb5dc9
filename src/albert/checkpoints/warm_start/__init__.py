"""A trained model begins another."""
