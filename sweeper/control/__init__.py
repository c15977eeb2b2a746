"""Read and change a study from outside its sweep: look it up, show, stop, enqueue, retry, export.

The running sweep itself (folder `sweep`) carries out requests to stop.
"""
