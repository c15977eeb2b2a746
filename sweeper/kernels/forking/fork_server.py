"""Fork kernels from a zygote: a process that has already imported what the notebook imports.

A notebook must not notice whether its kernel was forked, or started as Jupyter starts it. If it
might notice, kernels are started.
"""

from __future__ import annotations

import logging
import os
import sys
import threading
from collections.abc import Mapping, Sequence, Set
from dataclasses import replace
from pathlib import Path
from typing import Any

from jupyter_client.provisioning.local_provisioner import LocalProvisioner

from ...guard import MARK_VARIABLE
from .command import KernelCommand, Obstacle
from .forked_process import ANSWER_S, ForkedProcess, request_fork
from .ipython_folder import ipython_folder
from .origins import SWITCH_OFF, ForkAvailability, KernelSetup, Ready, Stage, Unready
from .sharing import NotShared, SharedCells, run_shared_cells
from .zygote_process import ZygoteProcess

_log = logging.getLogger(__name__)

# The limits below are chosen, not measured.
#: Longest time for a zygote's imports, in seconds. During the imports, kernels are started, not
#: forked.
_IMPORT_LIMIT_S = 120
#: Largest number of zygotes (processes to fork kernels from) that are started. A zygote is replaced
#: if it died, if some of its modules keep it from forking, or if its environment variables differ
#: from those of a kernel that has run the notebook.
_MOST_ZYGOTES = 5

#: Makes `torch.cuda.is_available()` ask NVML. By default, this call initializes CUDA, and a process
#: that has initialized CUDA cannot be forked.
_IMPORT_ENV = {"PYTORCH_NVML_BASED_CUDA_CHECK": "1"}
_UNKNOWN = Unready(
    Stage.IMPORTS_UNKNOWN,
    "when this trial began, no trial had shown yet which modules to import before a fork",
)
_PREPARING = Unready(
    Stage.COMING,
    "the libraries were being imported, or the shared cells ran, when this trial began",
)


def obstacle_of_system() -> Obstacle | None:
    """Return why no kernel can be forked on this system. Return None if kernels can be forked."""
    if sys.platform != "linux":
        return Obstacle(f"kernels are forked on Linux only, and this is {sys.platform}")
    try:
        os.close(os.pidfd_open(os.getpid()))
    except (AttributeError, OSError):  # Linux before 5.3 and some containers lack pidfd_open.
        return Obstacle("this system lacks pidfd_open, which Linux has since 5.3")
    return None


class _Refused(Exception):
    """No kernel of this sweep can be forked any more. The message of the exception says why."""


class ForkServer:
    """Forks kernels from a zygote: a process that has imported what the notebook imports.

    Args:
        command: Command that starts the kernels, or the reason why they can never be forked.
        setup: What all kernels have in common, with the environment in which the zygote imports.
        shared_cells: Cells that run once before kernels are forked. None if there are none.

    Attributes:
        available: Whether kernels can be forked now.
        finding: Remark for users about shared cells. None if there is none.
    """

    def __init__(
        self,
        command: KernelCommand | Obstacle,
        setup: KernelSetup,
        *,
        shared_cells: SharedCells | None = None,
    ) -> None:
        env = {**_IMPORT_ENV, **setup.env, MARK_VARIABLE: f"{setup.token}.zygote;"}
        self._setup = replace(setup, env=env)
        self._shared_cells = shared_cells
        self.finding: str | None = None
        self.available: ForkAvailability = _UNKNOWN
        self._interpreter: Sequence[str] = ()
        self._argv: Sequence[str] = ()
        match command:
            case Obstacle(reason):
                self.available = Unready(Stage.NEVER, reason)
            case KernelCommand():
                self._interpreter = command.interpreter
                self._argv = command.arguments
        self._lock = threading.Lock()
        #: Whether users were told that a kernel could not be forked.
        self._has_warned = False
        #: Modules that the zygote imports: those that a trial's kernel has imported, or those whose
        #: import the notebook's code shows. None until they are known. See `record_imports`.
        self._import_profile: Mapping[str, Any] | None = None
        #: Whether a kernel that ran the notebook has reported the environment variables that
        #: libraries read when they are imported; see `record_imports`.
        self._knows_environment = False
        #: Environment of the zygote after its imports.
        self._environment: Mapping[str, str | None] = env
        self._thread = threading.Thread(target=self._keep_zygote, name="fork server", daemon=True)
        self._is_closed = False
        self._zygote: ZygoteProcess | None = None

    @property
    def can_start_early(self) -> bool:
        """Whether `start_early` would start a zygote (process to fork from).

        False after the first zygote was started, and if kernels can never be forked.
        """
        return self._import_profile is None and not self._is_impossible

    @property
    def wants_import_profile(self) -> bool:
        """Whether `record_imports` still needs the imports of a kernel that ran the notebook."""
        return not self._knows_environment and not self._is_impossible

    @property
    def _is_impossible(self) -> bool:
        available = self.available
        return isinstance(available, Unready) and available.stage is Stage.NEVER

    def start_early(self, modules: Sequence[str]) -> None:
        """Start a zygote (process to fork from) before any kernel has run, if `can_start_early`.

        Args:
            modules: Imports in the notebook's code, each as `module` or `module:name`.
        """
        with self._lock:
            if self.can_start_early:
                self._start({"modules": modules, "environment": {}})

    def record_imports(self, profile: Mapping[str, Any]) -> None:
        """Start a zygote (process to fork from) that imports what a kernel has imported.

        Later calls have no effect. A zygote that `start_early` has started is replaced only if it
        differs from the kernel in an environment variable that libraries read when they are
        imported. There are two causes:

        - A library that was not among the `modules` of `start_early` has set the variable. The new
          zygote imports this library, so it has the same value as the kernel.
        - The notebook's own code has set the variable. Then no kernel can be forked.

        Args:
            profile: Modules and environment in the form of `in_kernel.import_profile`.
        """
        with self._lock:
            if not self.wants_import_profile or self._is_closed:
                return
            self._knows_environment = True
            if self._import_profile is None:
                self._start(profile)
            elif _set_by_notebook(profile, self._environment) is not None:
                self._import_profile = profile
                if self._zygote is not None:
                    self._zygote.let_go()

    def _start(self, profile: Mapping[str, Any]) -> None:
        """Start the thread that keeps a zygote (process to fork from) running.

        Args:
            profile: Modules that the zygote imports, and environment of the kernel that has
                imported them. The environment is empty if no kernel has run yet.
        """
        self._import_profile = profile
        self.available = _PREPARING
        self._thread.start()

    def fork(
        self,
        connection_file: str,
        *,
        env: Mapping[str, str],
        output: int,
    ) -> ForkedProcess | None:
        """Fork a kernel's process. Return None if the kernel must be started instead.

        Args:
            connection_file: Path of the kernel's connection file.
            env: Environment of the kernel.
            output: File descriptor that receives the text the process writes outside of any cell.
        """
        with self._lock:
            available, zygote = self.available, self._zygote
        if zygote is None or not isinstance(available, Ready):
            return None
        path = (available.shared or zygote).path
        request = {
            "argv": ["ipykernel_launcher", "-f", connection_file, *self._argv],
            "connection_file": connection_file,
            "env": dict(env),
        }
        try:
            return ForkedProcess(*request_fork(path, request, [output]), shared=available.shared)
        except TimeoutError:
            _log.info("the process that forks kernels has not answered within %g s", ANSWER_S)
        except (ConnectionError, FileNotFoundError) as error:
            _log.info("the process that forks kernels has ended: %s", error)
            zygote.let_go()
        except OSError as error:
            # The zygote runs, but cannot fork at the moment, for example because too many files are
            # open.
            _log.log(
                logging.INFO if self._has_warned else logging.WARNING,
                "a kernel cannot be forked, and is started instead, which is slower: %s; raise the "
                "limits of processes, memory and open files (ulimit -a)",
                error,
            )
            self._has_warned = True
        return None

    def close(self) -> None:
        """End the zygote (process to fork from), and with it every kernel that it has forked."""
        with self._lock:
            self._is_closed = True
            if self._zygote is not None:
                self._zygote.let_go()
        if self._thread.ident is not None:
            self._thread.join()

    def _keep_zygote(self) -> None:
        """Run a zygote (process to fork from), and replace it when it ends. Runs in a thread."""
        excluded: set[str] = set()
        obstacle = f"the process that forks kernels died repeatedly; {SWITCH_OFF}"
        try:
            for _ in range(_MOST_ZYGOTES):
                self._use_zygote(excluded)
                if self._is_closed:
                    obstacle = "the sweep has ended"
                    break
        except _Refused as refused:
            obstacle = str(refused)
        self.available = Unready(Stage.NEVER, obstacle)

    def _use_zygote(self, excluded: set[str]) -> None:
        """Start one zygote (process to fork from), and fork kernels from it until it ends.

        Args:
            excluded: Modules that the zygote does not import. This method adds the modules that
                keep the zygote from forking, so that the next zygote does not import them.

        Raises:
            _Refused: The zygote does not start or cannot fork kernels, and a new one would not
                either.
        """
        profile = self._import_profile
        assert profile is not None
        try:
            zygote = self._new_zygote(profile, excluded)
        except OSError as error:
            raise _Refused(
                f"the process that forks kernels does not start ({error}); {SWITCH_OFF}"
            ) from error
        with self._lock:
            self._zygote = zygote
            if self._is_closed or profile is not self._import_profile:
                zygote.let_go()
        try:
            self._fork_from(zygote, profile, excluded)
        finally:
            if isinstance(self.available, Ready) and self.available.shared is not None:
                self.available.shared.lease.close()
            self.available = _PREPARING
            zygote.end()

    def _fork_from(
        self, zygote: ZygoteProcess, profile: Mapping[str, Any], excluded: set[str]
    ) -> None:
        """Wait for a zygote's report on its imports, then allow forks from it until it ends.

        If the report names modules that keep the zygote from forking, add them to `excluded`, and
        return without forks. Return without forks also if there is no report because the zygote was
        told to end or the folder of its socket was removed.

        Args:
            zygote: Process to fork from, which was just started.
            profile: Modules that the zygote imports, and environment of the kernel that has
                imported them; see `record_imports`.
            excluded: Modules that the zygote does not import; see `_use_zygote`.

        Raises:
            _Refused: The zygote cannot fork kernels, and a new one could not either.
        """
        report = zygote.wait_for_report(_IMPORT_LIMIT_S)
        if report is None:
            was_removed = not Path(zygote.path).parent.exists()
            if was_removed or zygote.is_let_go:
                return
            raise _Refused(
                "the process that forks kernels died while it imported the notebook's libraries, "
                f"or needed more than {_IMPORT_LIMIT_S} s for them; "
                f"{SWITCH_OFF}"
            )
        if report.exclude:
            # The next zygote does not import these modules, so each kernel imports them itself.
            _log.info("not imported before forks: %s", ", ".join(report.exclude))
            excluded.update(report.exclude)
            return
        self._environment = {**self._setup.env, **report.environment}
        why = report.refusal or _set_by_notebook(profile, self._environment)
        if why is not None:
            raise _Refused(why)
        self._fork_after_shared_cells(zygote, import_s=report.duration_s)
        zygote.wait()

    def _new_zygote(self, profile: Mapping[str, Any], excluded: Set[str]) -> ZygoteProcess:
        configuration = ipython_folder(self._setup.runtime_folder)
        env = {**self._setup.env, "IPYTHONDIR": configuration}
        self._setup = replace(self._setup, env=env)
        entries = profile["modules"]
        imports = {
            "modules": [entry for entry in entries if excluded.isdisjoint(_modules_of(entry))],
            "argv": self._argv,
            "frozen": dict(self._setup.frozen),
        }
        return ZygoteProcess(self._interpreter, self._setup, imports=imports)

    def _fork_after_shared_cells(self, zygote: ZygoteProcess, *, import_s: float) -> None:
        """Run the cells tagged `shared`, if any, once for all trials, then allow forks.

        The cells run in a fork of the zygote, and kernels are then forked from that fork. If this
        is impossible, kernels are forked from the zygote itself, and each trial runs the cells.

        Args:
            zygote: Process that has imported the notebook's libraries.
            import_s: Seconds that the imports took.
        """
        self.finding = None
        shared = None
        try:
            if self._shared_cells is not None:
                shared = run_shared_cells(
                    self._shared_cells, self._setup, zygote=zygote.path, argv=self._argv
                )
        except NotShared as error:
            if not zygote.is_let_go:
                self.finding = (
                    f"each trial runs the cells tagged 'shared': {error}; remove the tag from "
                    "that cell and from all later cells"
                )
        except OSError as error:  # The next fork will find that the zygote has ended.
            _log.info("the process that forks kernels does not answer: %s", error)
        self.available = Ready(shared=shared, import_s=import_s)


def _modules_of(entry: str) -> set[str]:
    """Return the modules that an entry of `profile["modules"]` may import.

    The entry `a:b` means `from a import b`, where `b` may be a submodule.
    """
    module, _, name = entry.partition(":")
    return {module, f"{module}.{name}"} if name else {module}


def _set_by_notebook(
    profile: Mapping[str, Any], environment: Mapping[str, str | None]
) -> str | None:
    """Return why no kernel can be forked, if a notebook sets an environment variable of a library.

    Libraries read such a variable when they are imported. In a forked kernel, they are imported
    before the notebook sets the variable, so it would have no effect. Return None if the notebook
    sets no such variable.

    Args:
        profile: Modules and environment of a kernel that has run the notebook.
        environment: Environment after the imports of the notebook, without its other code.
    """
    for name, value in profile["environment"].items():
        if environment.get(name) != value:
            return (
                f"the notebook sets {name}, which libraries read when they are imported; set "
                f"{name} in the environment of the sweep instead"
            )
    return None


class ForkingProvisioner(LocalProvisioner):
    """Forks a kernel if that is possible, and starts it otherwise.

    Args:
        fork_server: Server that forks the kernel.
        **options: Further options of jupyter_client.
    """

    def __init__(self, *, fork_server: ForkServer, **options: Any) -> None:
        super().__init__(**options)
        self._fork_server = fork_server

    async def launch_kernel(self, cmd: list[str], **options: Any) -> Any:
        """Fork the kernel's process, or start it as the base class does."""
        forked = self._fork_server.fork(
            self.parent.connection_file,  # type: ignore[union-attr]
            env=options["env"],
            output=options["stderr"].fileno(),
        )
        if forked is None:
            return await super().launch_kernel(cmd, **options)
        self.process = forked  # type: ignore[assignment]
        self.pid = self.pgid = forked.pid
        self.cwd = options["cwd"]
        return self.connection_info
