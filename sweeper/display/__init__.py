"""Formats the lines and the live table of a sweep; the only owner of rich.

What is printed when, and to which stream, belongs to the command line.
"""
