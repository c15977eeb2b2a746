"""Formats what people see of a sweep: lines and the live table; the only owner of rich.

What is printed when, and to which stream, belongs to the command line.
"""
