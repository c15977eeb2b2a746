"""The trials of a study as samplers are to see them.

What a sampler makes of them does not belong here.
"""
