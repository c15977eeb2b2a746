"""Which trial is next and how each one ended; the only owner of Optuna and SQLAlchemy.

`confirmations`, `files` and `stored` do without Optuna. How a trial runs does not belong here.
"""
