"""Notebooks as data: the research notebook, executed notebooks, scores, shared cells, fingerprint.

Only this folder uses nbformat and nbconvert; `metadata` needs neither. Cells are executed
elsewhere.
"""
