"""Which params come next and which trials are worth their time: samplers and pruners by name.

What a study stores does not belong here.
"""
