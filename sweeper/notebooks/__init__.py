"""Notebooks as data: the research notebook, executed notebooks, scores, shared cells, fingerprint.

This folder reads, changes and writes notebooks. `kernels/` executes them. The module `metadata`
needs no notebook library, because it is also used where imports must be fast.
"""
