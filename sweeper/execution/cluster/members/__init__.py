"""The machines that sweep a study together: a scheduler at the one that leads, a worker at each.

Who leads does not belong here, nor what a worker does with a trial: that is the same on all
clusters.
"""
