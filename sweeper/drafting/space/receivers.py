"""Find which parameters of libraries get the values of a notebook's variables."""

from __future__ import annotations

from typing import TYPE_CHECKING

from ...notebook_code.own_training import OWN_LOOP, OWN_TRAINING
from ...notebook_code.plain import LeftOut
from .spaces import Receiver

if TYPE_CHECKING:
    from ...notebooks.research import ResearchNotebook


class Receivers:
    """Finds the parameters and variables to which a notebook's values are passed.

    Args:
        notebook: The research notebook.
    """

    def __init__(self, notebook: ResearchNotebook) -> None:
        self._assignments = notebook.assignments
        self.flows = notebook.flows

    def of(self, name: str) -> list[Receiver]:
        """List the parameters and names that get a variable's values, the most informative first.

        First come parameters of libraries, and then the variable's name. Next come parameters and
        attributes that the notebook defines, and last the arithmetic of a training loop that the
        notebook has written itself.
        """
        found: list[Receiver] = []
        names: list[Receiver] = [Receiver(parameter=name)]
        for place in self._assignments.places(name):
            value = place.value
            if isinstance(value, LeftOut):
                found.append(Receiver(callee=value.callee, parameter=value.parameter))
            elif value is not None:
                found += [
                    Receiver(callee=callee, parameter=parameter)
                    for callee, parameter in self.flows.receivers(value)
                ]
                names += [Receiver(parameter=own) for own in self.flows.names(value)]
        found = [*dict.fromkeys(found)]
        own_code = (OWN_TRAINING, OWN_LOOP)
        libraries = [receiver for receiver in found if receiver.callee not in own_code]
        others = [receiver for receiver in found if receiver.callee in own_code]
        return [*libraries, *dict.fromkeys(names), *others]

    def is_dead(self, name: str) -> bool:
        """Return whether no code seems to use the values of a name. Then a sweep of it is useless.

        An example is the item `C` in a dict of grades: code looks it up by a grade in the data, and
        nowhere by its name.
        """
        values = [place.value for place in self._assignments.places(name)]
        return not any(
            isinstance(value, LeftOut) or (value is not None and self.flows.is_used(value))
            for value in values
        )
