"""Which trial runs next and what becomes of its outcome, with the threads beside the trials.

Where trials run belongs to `execution`; what begins and ends a sweep, to the folder above.
"""
