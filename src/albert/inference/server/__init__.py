"""A model behind HTTP: bounded in memory, queue and time; every accepted request gets its own answer."""
