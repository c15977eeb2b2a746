"""Who sweeps a study on a PostgreSQL server: the lock of the study, and who leads its coordinators.

What a sweep stores about its trials does not belong here, nor how coordinators share them out.
"""
