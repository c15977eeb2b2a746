"""The sections `resources` and `cluster`: what trials use of a machine, and on which they run."""

from __future__ import annotations

import ipaddress
import re
from typing import Annotated, Literal, Self

from pydantic import AfterValidator, Field, model_validator

from .base import Duration, PlainValue, SettingsModel, Size, expected
from .messages import as_yaml, problem

_LOCAL = re.compile(r"local:([1-9]\d{0,3})")
#: Dask's addresses: tcp, tls, ucx, ws, wss; others come from its plug-ins.
_ADDRESS = re.compile(r"[a-z][a-z0-9+.-]*://[^\s/@]+(:\d+)?(/\S*)?")
#: The host in an address of Dask's protocols that encrypt nothing.
_EXPOSED = re.compile(r"(?:tcp|ws|ucx)://(\[[^]]*\]|[^:/]*)")
_CLASS = re.compile(r"[A-Za-z_]\w*(\.[A-Za-z_]\w*)+")


class Resources(SettingsModel):
    """What trials use of the machine: GPUs and processor cores.

    The number of threads can change the last bits of a result, so it does not depend on how many
    trials run at once.
    """

    gpus: Annotated[
        Literal["auto", "none"]
        | Annotated[
            tuple[Annotated[int, Field(ge=0)], ...],
            Field(strict=False, min_length=1),
            AfterValidator(lambda gpus: tuple(dict.fromkeys(gpus))),
        ],
        expected("auto, none or a list of GPU numbers such as [0, 1]"),
    ] = "auto"
    """The GPUs to use: `auto` for all, `none`, or their numbers, as in [0, 1]. They are numbered as
    by nvidia-smi, or as listed in CUDA_VISIBLE_DEVICES, whose own numbers are nvidia-smi's."""
    gpu_memory: Annotated[Literal["auto"] | Size, expected("auto or a size such as 9GB")] = "auto"
    """The memory that one trial takes of a GPU: no more trials share one than fit. `auto` measures
    what trials take."""
    gpus_per_trial: Annotated[int, Field(ge=1)] = 1
    """How many GPUs each trial gets; if more than one, they are its own."""
    mps: Literal["auto", "off"] = "off"
    """NVIDIA's Multi-Process Service, by which trials on one GPU compute at the same time instead
    of in turns: `auto` starts and ends it where it can be used. A fault of one trial then ends all
    on its GPU, and they are run again."""
    cpus_per_trial: Annotated[
        Literal["auto"] | Annotated[int, Field(ge=1)],
        expected("auto or a whole number of 1 or more"),
    ] = "auto"
    """The number of threads that each kernel computes with; `auto` is 1, whatever `--jobs` is."""

    @property
    def claim_bytes(self) -> int | None:
        """The stated memory that one trial takes of a GPU; None where it is measured."""
        return None if self.gpu_memory == "auto" else int(self.gpu_memory)

    @property
    def threads(self) -> int:
        """The number of threads that each kernel computes with."""
        return 1 if self.cpus_per_trial == "auto" else self.cpus_per_trial


class Cluster(SettingsModel):
    """The Dask cluster that runs the trials: one that exists, or one that the sweep starts."""

    url: str | None = None
    """The address of a scheduler, as in tls://host:8786, or local:4 for four workers on this
    machine."""
    class_: Annotated[str | None, Field(alias="class")] = None
    """The class that starts a cluster, as in dask_jobqueue.SLURMCluster; the sweep ends it."""
    options: dict[str, PlainValue] = Field(default_factory=dict)
    """The arguments of the class."""
    max: Annotated[int, Field(ge=1)] = 1
    """How many workers the class starts at most; never more than trials run at once."""
    wait: Duration = 600.0
    """How long the sweep waits for a first worker, and for another one or the scheduler when they
    are lost."""
    insecure: bool = False
    """Whether a scheduler on another host may be used without encryption: everybody on its network
    can then run code on the workers and read the trials."""

    @model_validator(mode="after")
    def _is_one_place(self) -> Self:
        if (self.url is None) == (self.class_ is None):
            raise problem(
                "expected exactly one of url and class: {url: tls://host:8786} for a cluster that "
                "exists, {class: dask_jobqueue.SLURMCluster, options: {…}, max: 8} for a new one"
            )
        if self.url is not None:
            if not (_LOCAL.fullmatch(self.url) or _ADDRESS.fullmatch(self.url)):
                raise problem(
                    "url: expected the address of a Dask scheduler, as in tls://host:8786, or "
                    f"local:N for N workers on this machine; got {as_yaml(self.url)}"
                )
            if is_exposed(self.url) and not self.insecure:
                raise problem(
                    f"url: {self.url} is another host without encryption, where everybody on the "
                    "network could run code on the workers; expected tls://…, or in a private "
                    "network cluster: {url: …, insecure: true}"
                )
            stated = [key for key in ("options", "max") if key in self.model_fields_set]
            if stated:
                raise problem(f"{stated[0]}: only a cluster that `class` starts has it; got a url")
        elif not _CLASS.fullmatch(str(self.class_)):
            raise problem(
                "class: expected a class with its module, as in dask_jobqueue.SLURMCluster; got "
                f"{as_yaml(self.class_)}"
            )
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


def is_exposed(address: str) -> bool:
    """Whether a scheduler's address is that of another host, without encryption."""
    match = _EXPOSED.match(address)
    if match is None:
        return False
    host = match[1].strip("[]")
    try:
        return not ipaddress.ip_address(host).is_loopback
    except ValueError:  # a name
        return host != "localhost"
