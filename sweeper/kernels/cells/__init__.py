"""Run the cells of one notebook in a kernel that is there, and read what the kernel sends.

How the kernel comes to be and ends does not belong here.
"""

from .papermill_import import import_papermill

import_papermill()  # before any module here imports it
