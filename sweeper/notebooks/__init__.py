"""A notebook as data: the research notebook, the executed one, scores, shared cells, fingerprint.

The owner of nbformat and nbconvert, without which `metadata` does. What executes cells does not
belong here.
"""
