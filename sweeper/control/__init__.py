"""Read and change a study from outside its sweep: look it up, show, stop, enqueue, retry, export.

How a sweep carries out a request does not belong here.
"""
