"""Format the lines and the live table that people see of a sweep. Only this folder uses rich.

The command line decides what is printed when, and to which stream.
"""
