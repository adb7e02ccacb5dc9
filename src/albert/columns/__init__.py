"""From the columns of the user's tables to a task: start with `read.py`."""
