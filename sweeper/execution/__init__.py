"""Where a trial runs: executor, worker (spec to outcome). The only owner of joblib.

How a machine is shared belongs to `machine`. Which trial runs next does not belong here.
"""
