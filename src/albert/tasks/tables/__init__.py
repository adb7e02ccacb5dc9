"""A table of the user's own: read as it is, its task inferred, its rows checked and counted."""
