"""Run the cells of one notebook in a kernel that is there, and read what the kernel sends.

How the kernel comes to be and ends does not belong here.
"""
