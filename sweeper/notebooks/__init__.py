"""Read the notebook that is swept, and read and write the executed notebook of each trial.

Modules of this folder also find scores in executed notebooks and compute fingerprints of studies.
The folder `kernels/` executes notebooks. The module `metadata` imports no notebook library, because
it is also used where imports must be fast.
"""
