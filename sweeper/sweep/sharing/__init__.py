"""Several machines that sweep one study together: which of them leads, and what the others do.

How trials travel between machines does not belong here (`execution/cluster/`), nor how a study is
locked (`study/coordinators/`).
"""
