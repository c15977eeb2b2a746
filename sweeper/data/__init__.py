"""The data of trials: pushed once to an object storage, and fetched once by each machine.

Which version of the data a sweep uses is decided in `sweep/inputs/`.
"""
