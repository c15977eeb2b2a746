"""Find which parameters of libraries get the values of a notebook, as far as its code shows."""

from __future__ import annotations

from ..notebooks.assignments import Assignments
from ..notebooks.flows import Flows
from .spaces import Receiver


class Receivers:
    """The receivers of a notebook's values.

    Args:
        assignments: Assignments of the notebook.
    """

    def __init__(self, assignments: Assignments) -> None:
        self._assignments = assignments
        self.flows = Flows(assignments.cells)

    def of(self, name: str) -> list[Receiver]:
        """List what receives the values of a name: parameters of libraries first, then the name."""
        found = [
            Receiver(callee=callee, parameter=parameter)
            for place in self._assignments.places(name)
            if place.value is not None
            for callee, parameter in self.flows.receivers(place.value)
        ]
        return [*dict.fromkeys(found), Receiver(parameter=name)]

    def is_dead(self, name: str) -> bool:
        """Whether nothing reads the values of a name.

        So is the `C` of a dictionary of grades, which is looked up by the grades of the data.
        """
        values = [place.value for place in self._assignments.places(name)]
        return not any(value is not None and self.flows.is_used(value) for value in values)
