"""What is measured of GPUs while trials hold them: how busy they are, how fast trials step.

Who gets a share, and what a trial may take, does not belong here.
"""
