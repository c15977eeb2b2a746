"""What is done to a study from outside a running sweep: look it up, show, stop, enqueue, retry.

What the sweep does with a request does not belong here.
"""
