"""The command line: one small file per command, dispatched lazily by the table in main.py."""
