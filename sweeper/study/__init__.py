"""Keep the record of a study: its storage, its proposals, and how each trial ended.

Only this folder uses SQLAlchemy for studies. The folder `search` chooses params, and `execution`
runs trials.
"""

from .. import search  # noqa: F401  It silences a warning that the import of Optuna causes.
