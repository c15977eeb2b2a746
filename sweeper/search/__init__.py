"""Choose the params of trials, and which trials to end early: samplers and pruners by name.

The folder `study` stores what they decide.
"""
