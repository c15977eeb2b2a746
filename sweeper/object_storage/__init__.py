"""Object storages such as S3, by URL: read, write, list and remove objects.

What is kept there belongs to `sync/` and `data/`.
"""
