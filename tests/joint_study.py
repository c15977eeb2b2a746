"""A study that several machines sweep together, and what its trials write about themselves."""

from __future__ import annotations

from pathlib import Path

from sweeper.testing import write_notebook

#: The environment variables with the folder of the test, and with the machine of a process.
EVENTS, MACHINE = "EVENTS", "MACHINE"
#: Each trial writes when it begins and ends, and on whose machine; it takes as long as the file
#: `slow` exists.
_TRAIN = f"""\
import os, pathlib, time, sweeper
trial = sweeper.trial()
folder = pathlib.Path(os.environ["{EVENTS}"])
def note(event):
    with open(folder / "events.txt", "a") as events:
        events.write(f"{{event}} {{trial.run_id}} {{trial.attempt}} {{os.environ['{MACHINE}']}}\\n")
note("begins")
sweeper.save_checkpoint(x=x)
sweeper.report(0, val=x / 2)
time.sleep(0.3)
while (folder / "slow").exists():
    time.sleep(0.05)
sweeper.report(1, val=x)
note("ends")
"""
_PARAMETERS = """\
objective: {{val: maximize}}
space: {{x: {{low: 0.0, high: 1.0}}}}
study: {{name: {study}, trials: {trials}, sampler: random}}
execution: {{kernels: cold}}
"""


def write_files(folder: Path, *, trials: int, study: str = "joint") -> list[str]:
    """Write the notebook and the parameters of the study into a new folder.

    Returns:
        the arguments of the command that sweeps it there with others, two trials at once.
    """
    folder.mkdir()
    write_notebook(folder / "nb.ipynb", _TRAIN, parameters="x = 0.5")
    (folder / "p.yml").write_text(_PARAMETERS.format(trials=trials, study=study))
    files = ["-i", "nb.ipynb", "-o", "out/{run_id}.ipynb", "-p", "p.yml"]
    return [*files, "-j", "2", "--shared"]


class Events:
    """What the trials have written.

    Args:
        folder: of the test.
    """

    def __init__(self, folder: Path) -> None:
        self._file = folder / "events.txt"

    def of(self, event: str, machine: str = "") -> list[tuple[str, str]]:
        """The run ids and attempts of an event; on one machine, where one is named."""
        if not self._file.exists():
            return []
        rows = [line.split() for line in self._file.read_text().splitlines()]
        return [(row[1], row[2]) for row in rows if row[0] == event and machine in ("", row[3])]
