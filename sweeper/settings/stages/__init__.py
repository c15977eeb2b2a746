"""What a parameters file takes of other studies: the section `inputs`.

How it is found and checked does not belong here.
"""

from .inputs import InputSource, check_inputs, choices_of

__all__ = ["InputSource", "check_inputs", "choices_of"]
