"""Object storages such as S3, by URL: read, write, list and remove objects.

The folders `sync/` and `data/` decide what is stored there.
"""
