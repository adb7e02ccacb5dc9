"""Files with tables as people have them, to rows of texts."""
