"""What can be known of a sweep before it is paid for: the command `check`.

Nothing here writes to a study, to MLflow or beside the notebook. What refuses a wrong call belongs
to `sweep/plan.py`, which is asked first.
"""
