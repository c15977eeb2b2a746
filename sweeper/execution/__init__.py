"""Where a trial runs: executor, worker (spec to outcome) and the share of the machine it gets.

The only owner of joblib, NVML and Dask. Which trial runs next does not belong here.
"""
