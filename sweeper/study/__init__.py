"""The record of a study: its storage, its proposals and how each trial ended.

The only owner of SQLAlchemy. How params are chosen belongs to `search`, how a trial runs to
`execution`.
"""
