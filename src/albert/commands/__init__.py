"""Commands, one file each: a function whose parameters are the options, and whose docstring is the help.

`albert.commands.function.command` makes a command of it. What needs torch is imported in the body, below the checks.
"""
