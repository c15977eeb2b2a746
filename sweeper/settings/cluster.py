"""The section `cluster`: the Dask cluster that runs the trials of a sweep."""

from __future__ import annotations

import re
from typing import Annotated, Any, Self

from pydantic import BeforeValidator, Field, ValidationError, WithJsonSchema, model_validator

from ..errors import SettingsError
from .base import SettingsModel
from .messages import as_yaml, problem
from .units import DURATION_SCHEMA, parse_duration

_LOCAL = re.compile(r"local:([1-9]\d{0,3})")
#: Dask's addresses: tcp, tls, ucx, ws, wss; others come from its plug-ins.
_ADDRESS = re.compile(r"[a-z][a-z0-9+.-]*://[^\s/@]+(:\d+)?(/\S*)?")
_CLASS = re.compile(r"[A-Za-z_]\w*(\.[A-Za-z_]\w*)+")
_EXPECTED = (
    "expected the address of a Dask scheduler, as in tcp://host:8786, or local:N for N workers on "
    "this machine"
)


class Cluster(SettingsModel):
    """The Dask cluster that runs the trials: one that exists, or one that the sweep starts."""

    url: str | None = None
    """The address of a scheduler, as in tcp://host:8786, or local:4 for four workers on this
    machine."""
    class_: Annotated[str | None, Field(alias="class")] = None
    """The class that starts a cluster, as in dask_jobqueue.SLURMCluster; the sweep ends it."""
    options: dict[str, Any] = Field(default_factory=dict)
    """The arguments of the class."""
    min: Annotated[int, Field(ge=0)] = 0
    """The workers that the class is asked for at least, also when fewer trials run."""
    max: Annotated[int, Field(ge=1)] = 1
    """The workers that the class is asked for at most; never more than trials run at once."""
    wait: Annotated[float, BeforeValidator(parse_duration), WithJsonSchema(DURATION_SCHEMA)] = 600.0
    """How long the sweep waits for a first worker, and for another one when all are lost."""

    @model_validator(mode="before")
    @classmethod
    def _url_alone(cls, value: Any) -> Any:
        return {"url": value} if isinstance(value, str) else value

    @model_validator(mode="after")
    def _is_one_place(self) -> Self:
        if (self.url is None) == (self.class_ is None):
            raise problem(
                "expected exactly one of url and class: {url: tcp://host:8786} for a cluster that "
                "exists, {class: dask_jobqueue.SLURMCluster, options: {…}, max: 8} for a new one"
            )
        if self.url is not None:
            if not (_LOCAL.fullmatch(self.url) or _ADDRESS.fullmatch(self.url)):
                raise problem(f"url: {_EXPECTED}; got {as_yaml(self.url)}")
            stated = [key for key in ("options", "min", "max") if key in self.model_fields_set]
            if stated:
                raise problem(f"{stated[0]}: only a cluster that `class` starts has it; got a url")
        elif not _CLASS.fullmatch(str(self.class_)):
            raise problem(
                "class: expected a class with its module, as in dask_jobqueue.SLURMCluster; got "
                f"{as_yaml(self.class_)}"
            )
        if self.min > self.max:
            raise problem(f"min: {self.min} is more than max, which is {self.max}")
        return self

    @property
    def local_workers(self) -> int:
        """How many workers to start on this machine; 0 for a cluster elsewhere."""
        match = _LOCAL.fullmatch(self.url or "")
        return int(match[1]) if match else 0

    @property
    def place(self) -> str:
        """The cluster for people."""
        return self.url or str(self.class_)


def check_cluster_flag(text: str) -> None:
    """Refuse a wrong value of `--cluster`.

    Raises:
        SettingsError: it is neither an address nor `local:N`.
    """
    try:
        Cluster.model_validate(text)
    except ValidationError as error:
        raise SettingsError(f"--cluster {text}: {_EXPECTED}") from error
