"""Define the sections `resources` and `cluster`: what trials use, and where they run."""

from __future__ import annotations

import ipaddress
import re
from typing import Annotated, Literal, Self

from pydantic import AfterValidator, Field, model_validator

from .base import Duration, PlainValue, SettingsModel, Size, expected
from .messages import as_yaml, problem

_LOCAL = re.compile(r"local:([1-9]\d{0,3})")
#: Pattern of Dask's addresses. Their schemes are tcp, tls, ucx, ws, wss, and those of plug-ins.
_ADDRESS = re.compile(r"[a-z][a-z0-9+.-]*://[^\s/@]+(:\d+)?(/\S*)?")
#: Pattern of an address without encryption. Its group is the host.
_EXPOSED = re.compile(r"(?:tcp|ws|ucx)://(\[[^]]*\]|[^:/]*)")
_CLASS = re.compile(r"[A-Za-z_]\w*(\.[A-Za-z_]\w*)+")


class Resources(SettingsModel):
    """What trials use of the machine: GPUs and processor cores.

    The number of threads can change the last bits of a result. So this number does not depend on
    how many trials run at once.
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
    """The GPUs to use: `auto` for all, `none`, or their numbers, as in [0, 1]. The numbers are
    those that nvidia-smi shows. If CUDA_VISIBLE_DEVICES is set, they are positions in its list,
    from 0."""
    gpu_memory: Annotated[Literal["auto"] | Size, expected("auto or a size such as 9GB")] = "auto"
    """The GPU memory that is reserved for one trial. Trials share a GPU as long as their memory
    fits. `auto` measures how much trials use."""
    gpus_per_trial: Annotated[int, Field(ge=1)] = 1
    """The number of GPUs for each trial. Trials do not share GPUs if it is more than one."""
    mps: Literal["auto", "off"] = "off"
    """NVIDIA's Multi-Process Service, with which trials on one GPU compute at the same time instead
    of in turns. `auto` starts and ends it if the machine supports it. A GPU error of one trial then
    ends all trials on its GPU, and they are run again."""
    frozen: Literal["auto", "off_gpu", "on_gpu"] = "auto"
    """Where a frozen trial, which `pruner: auto` has paused, keeps its GPU memory when another
    trial needs the GPU. `off_gpu` moves this memory to host memory and back, with NVIDIA's driver
    570 or newer and the extra `gpu`. With `on_gpu` the frozen trial is pruned instead. `auto` is
    `on_gpu`, because `off_gpu` has never run on a real GPU."""
    cpus_per_trial: Annotated[
        Literal["auto"] | Annotated[int, Field(ge=1)],
        expected("auto or a whole number of 1 or more"),
    ] = "auto"
    """The number of CPU threads that numerical libraries use in each trial. `auto` is 1, for every
    value of `--jobs`. The number changes the last bits of scores, so a change needs
    `--allow-changes`."""

    @property
    def claim_bytes(self) -> int | None:
        """Bytes of GPU memory to reserve for each trial. None if the sweep measures the use."""
        return None if self.gpu_memory == "auto" else int(self.gpu_memory)

    @property
    def threads(self) -> int:
        """Number of CPU threads that numerical libraries use in each kernel."""
        return 1 if self.cpus_per_trial == "auto" else self.cpus_per_trial


class Cluster(SettingsModel):
    """The Dask cluster that runs the trials: one that exists, or one that the sweep starts."""

    url: str | None = None
    """The address of a scheduler such as tls://host:8786, or local:4 for four workers on this
    machine."""
    class_: Annotated[str | None, Field(alias="class")] = None
    """The class that starts a cluster, such as dask_jobqueue.SLURMCluster. The sweep also ends the
    cluster."""
    options: dict[str, PlainValue] = Field(default_factory=dict)
    """The arguments of the class."""
    max: Annotated[int, Field(ge=1)] = 1
    """The number of workers that the class starts at most. There are never more workers than the
    study has trials, or than -j allows."""
    wait: Duration = 600.0
    """How long the sweep waits for the first worker, and for a new worker or the scheduler after it
    was lost."""
    insecure: bool = False
    """Whether a scheduler on another host may be used without encryption. Everybody on its network
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
                raise problem(
                    f"{stated[0]}: this key belongs to `class`, but url is set; remove "
                    f"{stated[0]} or url"
                )
        elif not _CLASS.fullmatch(str(self.class_)):
            raise problem(
                "class: expected a class with its module, as in dask_jobqueue.SLURMCluster; got "
                f"{as_yaml(self.class_)}"
            )
        return self

    @property
    def local_workers(self) -> int:
        """Number of workers to start on this machine: N with `url: local:N`, else 0."""
        match = _LOCAL.fullmatch(self.url or "")
        return int(match[1]) if match else 0

    @property
    def place(self) -> str:
        """The cluster's address or class, for messages."""
        return self.url or str(self.class_)


def is_exposed(address: str) -> bool:
    """Return whether a scheduler is on another host and its address has no encryption."""
    match = _EXPOSED.match(address)
    if match is None:
        return False
    host = match[1].strip("[]")
    try:
        return not ipaddress.ip_address(host).is_loopback
    except ValueError:  # The host is a name and not an IP address.
        return host != "localhost"
