"""Formats what people see of a sweep: lines, the live table, a plot; the only owner of rich.

What is printed when, and to which stream, belongs to the command line.
"""
