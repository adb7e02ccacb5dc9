"""Files of all kinds to documents, each of them counted."""
