"""The data of trials: a folder that is pushed once, and fetched once by each machine.

What a study writes, and its copy in an object storage, do not belong here but in `sync/` itself.
"""

from .dataset import Dataset, Pushed
from .folder import Standing

__all__ = ["Dataset", "Pushed", "Standing"]
