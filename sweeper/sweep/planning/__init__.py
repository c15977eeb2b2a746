"""What a sweep will do, settled and checked before anything is begun.

What is read from other studies belongs to `inputs`.
"""
