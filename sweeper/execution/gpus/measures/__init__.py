"""What is measured while trials hold GPUs: how busy these are, how fast trials step, when they end.

Who gets a share, and what a trial may take, does not belong here.
"""
