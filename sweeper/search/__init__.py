"""Choose the params of trials with samplers, and the trials that end early with pruners.

The folder `study` stores these choices.
"""
