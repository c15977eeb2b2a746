"""Prepare a kernel for its trial, and answer the sweep's questions inside the kernel.

The code adds no variable to the notebook. A forked kernel gets this module from the process that it
was forked from, the zygote. A fresh kernel (a new process, not a fork) runs the source of this
module. So the module imports only the standard library, and IPython inside of functions. The Python
of a kernel may be 3.9.
"""

from __future__ import annotations

import ast
import atexit
import builtins
import codecs
import contextlib
import ctypes
import fcntl
import numbers
import os
import re
import select
import signal
import struct
import subprocess
import sys
import sysconfig
import termios
import time
from collections import deque
from collections.abc import Callable, Mapping, Sequence
from hashlib import blake2b
from importlib import metadata
from itertools import islice
from json import JSONDecoder, JSONEncoder
from pathlib import Path
from types import BuiltinFunctionType, FunctionType, MethodType, ModuleType
from typing import Any

# A notebook may replace a builtin, as in `builtins.print = rich.print`. So the functions below use
# this copy of the original builtins.
globals()["__builtins__"] = dict(vars(builtins))

#: Key of the sweep's question among the `user_expressions` of an `execute_request`, as Jupyter's
#: protocol names them.
QUESTION = "the sweep's question"

#: Matches environment variables that libraries read when they are imported. Setting such a variable
#: later has no effect. Variables that each trial sets are left out: CUDA reads the variables for
#: devices and MPS when it is initialized, and torch reads the variable for its allocator when it
#: first uses CUDA. Two other variables are left out because they are read later too: Hugging Face's
#: token, and the cache of torch's compiler, which torch itself sets.
_READ_AT_IMPORT = re.compile(
    r"(PYTHON(?!HASHSEED)|LD_|OMP_|GOMP_|KMP_|MKL_|OPENBLAS_|BLIS_|NUMEXPR_|NUMBA_|NPY_|TF_|XLA_|"
    r"JAX_|KERAS_|HF_(?!TOKEN$)|TRANSFORMERS_|TORCH(?!INDUCTOR_CACHE_DIR)|PYTORCH_(?!(CUDA_)?ALLOC_CONF)|"
    r"CUDA_(?!VISIBLE_DEVICES|MPS_)|MPL(?!BACKEND)|TZ$)"
)
#: Milliseconds between two checks whether a shell command without output has ended, as in IPython.
_POLL_MS = 50
#: An interrupted shell command must end within this number of seconds, as in IPython.
_INTERRUPTED_S = 0.5
#: Lines and columns of a shell command's terminal, as in IPython.
_TERMINAL_SIZE = (24, 80)
#: Largest number of bytes of a command's output that is read at once (chosen, not measured).
_READ_BYTES = 1 << 16
#: Signals that all processes get before a machine shuts down. The end of a login session sends
#: both.
ENDING_SIGNALS = (signal.SIGTERM, signal.SIGHUP)
#: Option of Linux's `prctl`: send this process a signal when its parent ends.
_PR_SET_PDEATHSIG = 1
#: The sweep gets a text of about this many characters at most for a value that is no plain scalar
#: (chosen, not measured).
_DESCRIPTION_CHARACTERS = 200
#: Integers from this size on are sent as text, because not every JSON reader supports them.
_INTEGER_LIMIT = 1 << 63
#: Attribute of IPython's shell after cells tagged `shared` have run: the seed with which their
#: random generators began, and the names of the generators that they have seeded or used.
DRAWN = "_sweeper_drawn"
#: `WATCHED`: attribute of the shell that holds the `WatchedNumbers` and `WatchedChanges`.
#: `WATCH_VARIABLE`: environment variable that makes the kernel record them.
WATCHED, WATCH_VARIABLE = "_sweeper_watched", "SWEEPER_WATCHED"
#: Lists with more than `_LONGEST_SERIES` values and dictionaries with more than `_MOST_KEYS` keys
#: count as data and not as scores. At most `_MOST_VARIABLES` variables are read (chosen, not
#: measured).
_LONGEST_SERIES, _MOST_KEYS, _MOST_VARIABLES = 5000, 50, 2000
#: An array with more values than this counts as data and not as scores (chosen, not measured). A
#: cross-validation with five folds, for example, gives an array of five scores.
_LONGEST_ARRAY = 50
#: The check whether an object has changed reads at most `_MOST_PARTS` of its parts, and at most
#: `_MOST_ELEMENTS` elements of each collection or array (chosen, not measured).
_MOST_PARTS, _MOST_ELEMENTS = 5000, 100
#: Reading variables between statements may take `_FREE_S` seconds, plus the share `_MOST_TIME` of
#: the notebook's running time (chosen, not measured).
_MOST_TIME, _FREE_S = 0.02, 1.0
#: At most this many files and folders next to the notebook are checked for changes (chosen, not
#: measured).
_MOST_ENTRIES = 2000
#: Types of objects whose changes do not count as changes of an object that refers to them.
_WITHOUT_PARTS = (ModuleType, FunctionType, BuiltinFunctionType, MethodType)
#: When a kernel ends, it waits at most this number of seconds for its control thread, which has
#: received the request to end (chosen, not measured).
_LAST_REQUEST_S = 2


# --- before the first cell ---------------------------------------------------------------------


def prepare_started(
    finders: str, folder: str, frozen: Mapping[str, str], random_seed: int, **trial: Any
) -> None:
    """Prepare a kernel that was started, not forked, for its trial; see also `prepare`.

    The package `sweeper` becomes importable, and so do the frozen modules: the notebook's local
    modules as they were when the sweep began. On Linux, the kernel ends from now on when the
    sweep's process ends, even if the kernel is paused.

    Args:
        finders: Source of the module `finders`.
        folder: Folder of the package `sweeper`.
        frozen: Sources of the frozen modules, by absolute path without symbolic links.
        random_seed: Seed with which the random generators begin.
        trial: Arguments of `prepare`: the environment variables and the GPU memory limit.
    """
    end_with_parent()
    leave_the_end_to_the_sweep()
    prepare(**trial)
    names: dict[str, Any] = {"__name__": "sweeper_finders"}
    exec(finders, names)
    names["install"](finders, folder, frozen)
    names["observe_libraries"]()
    _before_next_cell(lambda: names["seed_generators"](random_seed))


def prepare_forked(random_seed: int, **trial: Any) -> None:
    """Prepare a forked kernel for its trial; see `prepare`. The module `finders` is loaded already.

    Args:
        random_seed: Seed with which the random generators begin.
        trial: Arguments of `prepare`: the environment variables and the GPU memory limit.
    """
    prepare(**trial)
    finders: Any = sys.modules["_sweeper_zygote.finders"]
    finders.observe_libraries()
    from IPython import get_ipython

    seed, drawn = getattr(get_ipython(), DRAWN, (None, ()))
    without = sys.modules.keys() if seed == random_seed else drawn
    _before_next_cell(lambda: finders.seed_generators(random_seed, without))


def _before_next_cell(call: Callable[[], None]) -> None:
    """Call a function just before the next cell runs.

    A function that seeds random generators must not run sooner, because opening the kernel's
    sockets draws random numbers too.
    """
    from IPython import get_ipython

    events = get_ipython().events

    def once() -> None:
        events.unregister("pre_execute", once)
        call()

    events.register("pre_execute", once)


def end_with_parent() -> None:
    """Let the system kill this process when its parent ends, on Linux."""
    if sys.platform == "linux":
        ctypes.CDLL(None).prctl(_PR_SET_PDEATHSIG, signal.SIGKILL)


def leave_the_end_to_the_sweep() -> None:
    """Let this process survive the signals that all processes get before a machine shuts down.

    The sweep gets SIGTERM and SIGHUP too, and decides how long its trials may save their state. A
    handler that does nothing is used instead of SIG_IGN, which programs that are started later
    would inherit. Forked children get the system's default again, so that a data loader can end its
    workers. A notebook may replace the handler.
    """
    for number in ENDING_SIGNALS:
        if signal.getsignal(number) is signal.SIG_DFL:
            signal.signal(number, _survive)
    os.register_at_fork(after_in_child=_end_by_signals)


def _survive(_number: int, _frame: Any) -> None:
    """Ignore a signal. The sweep has received it too, and decides when its kernels end."""


def _end_by_signals() -> None:
    """Let SIGTERM and SIGHUP end a forked child: undo `leave_the_end_to_the_sweep` in it."""
    for number in ENDING_SIGNALS:
        if signal.getsignal(number) is _survive:
            signal.signal(number, signal.SIG_DFL)


def prepare(*, environment: Mapping[str, str], gpu_fraction: float | None) -> None:
    """Set the trial's environment variables in a kernel, and let it answer the sweep's questions.

    Args:
        environment: Environment variables of the trial.
        gpu_fraction: Fraction of a GPU's memory that torch may use. None for no limit. torch reads
            this limit when it first uses CUDA.
    """
    os.environ.update(environment)
    if gpu_fraction is not None:
        _cap_memory(gpu_fraction)
    from IPython import get_ipython

    shell = get_ipython()
    _answer_questions(shell)
    if os.environ.pop(WATCH_VARIABLE, ""):
        watched = WatchedNumbers(shell), WatchedChanges(shell)
        setattr(shell, WATCHED, watched)
        for watching in watched:
            shell.events.register("post_run_cell", watching.note)
    adapt(shell)


def adapt(shell: Any) -> None:
    """Give shell commands of the notebook an empty input, and let `exit()` end the notebook."""
    _run_commands_without_input(shell)
    shell.ask_exit = _end_notebook


def _end_notebook() -> None:
    """End the notebook at `exit()` and `quit()`, by an exception that ends the cell.

    ipykernel's own method would let the cell continue, and end the whole kernel afterwards.
    """
    raise SystemExit


def _cap_memory(fraction: float) -> None:
    """Limit torch to a fraction of its GPU's memory, unless users have configured its allocator."""
    if {"PYTORCH_ALLOC_CONF", "PYTORCH_CUDA_ALLOC_CONF"} & {*os.environ}:
        return
    try:
        version = [int(part) for part in metadata.version("torch").split(".")[:2]]
    except (ImportError, ValueError):
        return
    # torch before 2.13 does not know this key, and would refuse to use CUDA because of it.
    if version >= [2, 13]:
        capped = f"per_process_memory_fraction:{fraction:.4f}"
        os.environ["PYTORCH_CUDA_ALLOC_CONF"] = capped


def _answer_questions(shell: Any) -> None:
    """Let the kernel answer the sweep's question among the `user_expressions` of a request.

    IPython passes the values of user expressions to the notebook's display formatters, which may
    round values, color them or raise. The answer to the sweep does not pass through them.
    """
    evaluate = shell.user_expressions
    files = NotebookFiles(_tried(Path.cwd) or Path())

    def user_expressions(expressions: Mapping[str, str]) -> Any:
        if QUESTION not in expressions:
            return evaluate(expressions)
        question = JSONDecoder().decode(expressions[QUESTION])
        answer = _answer(shell, files, **question)
        return {QUESTION: {"status": "ok", "answer": JSONEncoder().encode(answer)}}

    shell.user_expressions = user_expressions


# --- shell commands -----------------------------------------------------------------------------


def _run_commands_without_input(shell: Any) -> None:
    """Give shell commands (`!command`) an empty input.

    IPython runs such a command in a terminal, in which `unzip`, `cp -i`, git and ssh may ask a
    question and wait forever for the answer.
    """

    def system(command: str) -> None:
        if command.rstrip().endswith("&"):
            raise OSError("Background processes not supported.")
        # With `depth`, `{name}` in a command may also be a local variable of the function that runs
        # the command.
        code = _run_command(shell.var_expand(command, depth=1))
        shell.user_ns["_exit_code"] = code
        if getattr(shell, "system_raise_on_error", False) and code != 0:
            raise subprocess.CalledProcessError(code, command)

    shell.system = system


def _run_command(command: str) -> int:
    """Run a command, print its output as it arrives, and return its exit code.

    The command prints to a terminal, so that it shows its progress. This terminal is not its
    controlling terminal, so the command has no `/dev/tty`. A read from the terminal returns the end
    of input, so the command cannot wait for an answer.
    """
    output, terminal = os.openpty()
    try:
        _set_up_terminal(terminal)
        process = subprocess.Popen(
            [os.environ.get("SHELL", "sh"), "-c", command],
            stdin=subprocess.DEVNULL,
            stdout=terminal,
            stderr=terminal,
            start_new_session=True,
        )
    except BaseException:
        os.close(output)
        raise
    finally:
        os.close(terminal)
    try:
        _print_output(process, output)
    except KeyboardInterrupt:
        _signal_group(process, signal.SIGINT)
        with contextlib.suppress(subprocess.TimeoutExpired):
            process.wait(_INTERRUPTED_S)
        raise
    finally:
        os.close(output)
        if process.poll() is None:
            _signal_group(process, signal.SIGKILL)
            process.wait()
    code = process.returncode
    # A shell returns 128 plus the signal that ended its command. IPython returns minus the signal.
    return 128 - code if code > 128 else code


def _set_up_terminal(terminal: int) -> None:
    """Set the size of a terminal, and let every read from it return the end of input."""
    fcntl.ioctl(terminal, termios.TIOCSWINSZ, struct.pack("HHHH", *_TERMINAL_SIZE, 0, 0))
    attributes = termios.tcgetattr(terminal)
    attributes[3] &= ~(termios.ICANON | termios.ECHO)
    attributes[6][termios.VMIN] = 0
    attributes[6][termios.VTIME] = 0
    termios.tcsetattr(terminal, termios.TCSANOW, attributes)


def _print_output(process: Any, output: int) -> None:
    """Print what a process writes to its terminal, until the process has ended.

    Args:
        process: Process of a shell command.
        output: File descriptor from which the text in the terminal is read.
    """
    decoder = codecs.getincrementaldecoder("utf-8")("replace")
    poll = select.poll()
    poll.register(output, select.POLLIN)
    has_ended = False
    while True:
        if poll.poll(0 if has_ended else _POLL_MS):
            try:
                data = os.read(output, _READ_BYTES)
            except OSError:  # No process has the terminal open any more.
                break
            if not data:
                break
            sys.stdout.write(decoder.decode(data))
            sys.stdout.flush()
        elif has_ended:  # Do not wait for processes that keep the terminal open.
            break
        elif process.poll() is not None:
            has_ended = True
            # End the processes that the command has started, as a terminal does when it is closed.
            # `nohup` protects them.
            _signal_group(process, signal.SIGHUP)
    sys.stdout.write(decoder.decode(b"", True))
    process.wait()


def _signal_group(process: Any, number: int) -> None:
    with contextlib.suppress(ProcessLookupError):
        os.killpg(process.pid, number)


# --- the numbers that a notebook computes -------------------------------------------------------


class WatchedNumbers:
    """Records the numbers in the notebook's variables after each cell.

    Args:
        shell: IPython's shell.

    Attributes:
        numbers: Two facts about each number, by its expression, such as `losses[-1]`. `cell`:
            execution count of the cell that changed the number last. `values`: the number in
            hexadecimal. For the last element of a list, `values` has all elements. For the mean of
            an array, it has all elements and then the mean.
    """

    def __init__(self, shell: Any) -> None:
        self._shell = shell
        self._known = set(shell.user_ns)
        #: Numbers that the last lines of cells have shown.
        self._shown: dict[str, dict[str, Any]] = {}
        self.numbers: dict[str, dict[str, Any]] = {}

    def note(self, result: Any) -> None:
        """Record the numbers in the notebook's variables after a cell.

        An error in the recording never fails the notebook.
        """
        if _is_cell(result):
            _tried(self._note, result)

    def _note(self, result: Any) -> None:
        count = result.execution_count
        names = [name for name in self._shell.user_ns if name not in self._known]
        found: dict[str, dict[str, Any]] = {}
        for name in names[:_MOST_VARIABLES]:
            if name.startswith("_"):
                continue
            value = self._shell.user_ns[name]
            for expression, values in _tried(_numbers_of, name, value) or ():
                number = self.numbers.get(expression)
                if number is None or number["values"] != values:
                    number = {"cell": count, "values": values}
                found[expression] = number
        if result.result is not None:
            for expression, values in _tried(_numbers_of, "", result.result) or ():
                self._shown[expression] = {"cell": count, "values": values}
        now = {**found, **self._shown}
        # Keep the order in which the numbers were first seen. The sweep proposes one of them as the
        # score, and this order decides between numbers that are equally likely.
        in_order = [*self.numbers, *now]
        self.numbers = {expression: now[expression] for expression in in_order if expression in now}


def _is_cell(result: Any) -> bool:
    """Return whether an `ExecutionResult` is that of a whole cell, not of code that a cell runs.

    The magic `%%capture`, for example, runs the code of its cell, and this code has another result.
    """
    return bool(getattr(getattr(result, "info", None), "store_history", True))


def _numbers_of(name: str, value: Any) -> list[tuple[str, list[str]]]:
    """Return the numeric expressions of a variable, such as `losses[-1]`, with their values.

    The values are in hexadecimal.
    """
    parts = {name: value}
    if isinstance(value, dict):
        if len(value) > _MOST_KEYS:
            return []
        parts = {
            f"{name}[{str.__repr__(key)}]": part
            for key, part in value.items()
            if isinstance(key, str)
        }
    found: list[tuple[str, list[str]]] = []
    for expression, part in parts.items():
        found += _tried(_numbers_in, expression, part) or ()
    return found


def _numbers_in(expression: str, value: Any) -> list[tuple[str, list[str]]]:
    shape = getattr(value, "shape", None)
    if isinstance(value, list):
        if not 1 < len(value) <= _LONGEST_SERIES:
            return []
        values = [_hexadecimal(part) for part in value]
        expression = f"{expression}[-1]"
    elif shape is not None and len(shape) == 1 and 1 < shape[0] <= _LONGEST_ARRAY:
        values = [*map(_hexadecimal, value), _hexadecimal(value.mean())]
        expression = f"{expression}.mean()"
    else:
        values = [_hexadecimal(value)]
    return [] if None in values else [(expression, values)]


def _hexadecimal(value: Any) -> Any:
    """Return a real number in hexadecimal. Return None for other values."""
    if getattr(value, "shape", None) == ():
        # TensorFlow's scalars have no `item`.
        value = value.item() if hasattr(value, "item") else float(value)
    if isinstance(value, bool) or not isinstance(value, numbers.Real):
        return None
    return float(value).hex()


# --- what each statement of a notebook changes --------------------------------------------------


class WatchedChanges:
    """Records which variables each statement of the notebook's top level changes.

    A call is put in front of each statement. It compares the variables with those before the
    previous statement. The notebook's statements themselves do not change.

    Args:
        shell: IPython's shell.

    Attributes:
        changes: Names of the changed variables, by the execution count and the position of the
            statement in its cell, from 1, as in `7:3`. Statements after which the time limit for
            reading variables was used up are missing.
    """

    def __init__(self, shell: Any) -> None:
        self._shell = shell
        self._known = set(shell.user_ns)
        self._marks: dict[str, Any] | None = {}
        self._position = 0
        self._is_seen = False
        self._by_position: dict[int, list[str]] = {}
        self._began_s, self._spent_s = time.monotonic(), 0.0
        self.changes: dict[str, list[str]] = {}
        shell.ast_transformers.append(self)
        # The calls in the notebook's code find this function as a builtin.
        builtins._sweeper_next = self.begin  # type: ignore[attr-defined]

    def visit(self, tree: ast.Module) -> ast.Module:
        """Put a call in front of each statement of a cell. IPython calls this method."""
        if self._is_seen:
            return tree  # This is code in a magic of the cell, such as %timeit: leave it as it is.
        self._is_seen = True
        body: list[ast.stmt] = []
        for position, statement in enumerate(tree.body, 1):
            if getattr(statement, "module", "") != "__future__":
                next_ = ast.Name(id="_sweeper_next", ctx=ast.Load())
                place = ast.Constant(value=position)
                call = ast.Expr(value=ast.Call(func=next_, args=[place], keywords=[]))
                ast.copy_location(call, statement)
                body.append(ast.fix_missing_locations(call))
            body.append(statement)
        tree.body = body
        return tree

    def begin(self, position: int) -> None:
        """Record what the previous statement has changed. Errors never fail the notebook.

        Args:
            position: Position in its cell, from 1, of the statement that runs next.
        """
        _tried(self._record)
        self._position = position

    def note(self, result: Any) -> None:
        """Record what the last statement of a cell has changed."""
        if not _is_cell(result):
            return
        _tried(self._record)
        for position, names in self._by_position.items():
            self.changes[f"{result.execution_count}:{position}"] = names
        self._position, self._is_seen, self._by_position = 0, False, {}

    def _record(self) -> None:
        # Limit the CPU time of the reading, not its duration: a busy machine then records as much
        # as an idle one.
        began_s = time.thread_time()
        before, self._marks = self._marks, None
        if self._spent_s > _FREE_S + _MOST_TIME * (time.monotonic() - self._began_s):
            return
        now: dict[str, Any] = {}
        for name, value in list(self._shell.user_ns.items())[:_MOST_VARIABLES]:
            if name not in self._known and not name.startswith("_"):
                now[name] = _tried(_mark, value)
        if self._position and before is not None:
            changed = self._by_position.setdefault(self._position, [])
            for name, mark in now.items():
                if name not in before or mark != before[name]:
                    changed.append(name)
        self._marks = now
        self._spent_s += time.thread_time() - began_s


def _mark(value: Any) -> int:
    """Return a hash of an object's parts, which differs if one of these parts has changed.

    The parts are elements, attributes, and their parts. Of a large object, only some parts count.
    Keys of dictionaries, modules and functions do not count.
    """
    marks: list[Any] = []
    seen: set[int] = set()
    waiting = deque([value])
    while waiting and len(seen) < _MOST_PARTS:
        part = waiting.popleft()
        if isinstance(part, (int, float, complex, str, bytes, type(None))):
            marks.append(hash(part))
        elif id(part) not in seen and not isinstance(part, _WITHOUT_PARTS):
            seen.add(id(part))
            waiting += _parts(part, marks)
    return hash(tuple(marks))


def _parts(part: Any, marks: list[Any]) -> Sequence[Any]:
    """Return the parts of an object that `_mark` reads next, such as elements or attributes.

    Args:
        part: The object, which is a part of another one, or the value of a variable.
        marks: Facts from which `_mark` computes the hash. Facts that need no further reading, such
            as the object's length, are appended to this list.
    """
    kind = type(part)
    if isinstance(part, (list, tuple, set, frozenset, dict)):
        marks.append(len(part))
        if isinstance(part, dict):
            return [either for item in islice(part.items(), _MOST_ELEMENTS) for either in item]
        first = [*islice(part, _MOST_ELEMENTS)]
        return [*first, *part[-1:]] if isinstance(part, list) else first
    if hasattr(kind, "shape"):
        marks.append(str(_tried(_elements, part)))
        return [part.grad] if getattr(part, "is_leaf", False) else []
    if isinstance(part, type) and part.__module__ != "__main__":
        return []
    if hasattr(part, "__dict__"):
        return [*vars(part).values()]
    marks.append(id(part))
    return []


def _elements(part: Any) -> Any:
    """Return the shape and some elements of an array, a tensor, a data frame or the like."""
    kind = type(part)
    if hasattr(kind, "iloc"):
        return part.shape, part.iloc[:_MOST_ELEMENTS].to_numpy(), getattr(part, "columns", None)
    if hasattr(kind, "detach"):
        part = part.detach()
    elif hasattr(kind, "numpy") and not hasattr(kind, "__array_interface__"):
        part = part.numpy()
    flat = part.reshape(-1)
    return part.shape, flat[:: len(flat) // _MOST_ELEMENTS + 1].tolist()


# --- after the last cell -----------------------------------------------------------------------


def _answer(
    shell: Any,
    files: NotebookFiles,
    *,
    floats: Sequence[str],
    values: Sequence[str],
    reads_imports: bool,
) -> dict[str, Any]:
    """Answer the sweep's question in a kernel, and prepare the kernel for a clean exit.

    Args:
        shell: IPython's shell.
        files: Files next to the notebook as they were before the first cell.
        floats: Expressions to read as numbers.
        values: Expressions to read as plain values.
        reads_imports: Whether to list the modules that the kernel has imported.

    Returns:
        The attributes of `Answer` in `expressions.py`, with numbers in hexadecimal, which keeps all
        bits.
    """
    read: dict[str, str] = {}
    unread: dict[str, str] = {}
    for name in floats:
        try:
            read[name] = float(_value(shell, name)).hex()
        except BaseException as error:  # noqa: BLE001  The sweep waits for a reply.
            unread[name] = _first_line(error)
    scalars: dict[str, Any] = {}
    for name in values:
        try:
            scalars[name] = _scalar_or_text(_value(shell, name))
        except BaseException:  # noqa: BLE001  A value that cannot be read is left out.
            continue
    answer = {
        "floats": read,
        "unread": unread,
        "values": scalars,
        "imports": _tried(import_profile) if reads_imports else None,
        "gpu_bytes": _tried(_gpu_bytes),
        "notices": {
            "not_replicable": _tried(_not_replicable) or [],
            "overwritten_files": _tried(files.overwritten) or [],
        },
        "numbers": _tried(lambda: getattr(shell, WATCHED)[0].numbers) or {},
        "changes": _tried(lambda: getattr(shell, WATCHED)[1].changes) or {},
    }
    _tried(_end_in_order, shell.kernel)
    return answer


def _tried(read: Any, *arguments: Any) -> Any:
    """Call a function and return its result. Return None if it raises."""
    try:
        return read(*arguments)
    except BaseException:  # noqa: BLE001  Without a reply, the sweep would wait forever.
        return None


def _value(shell: Any, expression: str) -> Any:
    return eval(expression, shell.user_global_ns, shell.user_ns)


def _first_line(error: BaseException) -> str:
    """Return the class of an exception and the first line of its message, shortened."""
    text = _tried(str, error) or ""
    line = f"{type(error).__name__}: {text}".partition("\n")[0]
    return line[: 2 * _DESCRIPTION_CHARACTERS]


def _scalar_or_text(value: Any) -> Any:
    """Return the value of a scalar that JSON supports, and a short text for any other object.

    A text that is shortened ends with a digest of the whole text.
    """
    if getattr(value, "shape", None) == () and hasattr(value, "item"):
        # Convert scalars of numpy, torch and JAX.
        value = value.item()
    if value is None or isinstance(value, bool):
        return value
    if isinstance(value, int) and abs(value) < _INTEGER_LIMIT:
        return int(value)
    if isinstance(value, float):
        return float(value)
    if isinstance(value, str) and len(value) <= _DESCRIPTION_CHARACTERS:
        return str.__str__(value)
    text = _tried(repr, value) or f"<{type(value).__name__}>"
    if len(text) <= _DESCRIPTION_CHARACTERS:
        return text
    # The sweep compares these texts, so the texts of two different long prompts must differ.
    digest = blake2b(text.encode(errors="backslashreplace"), digest_size=8).hexdigest()
    return f"{text[:_DESCRIPTION_CHARACTERS]}… #{digest}"


def library_folders() -> tuple[str, ...]:
    """Return the folders of this Python in which libraries are installed."""
    paths = sysconfig.get_paths()
    kinds = ("stdlib", "platstdlib", "purelib", "platlib")
    return tuple(paths[kind] for kind in kinds if kind in paths)


def is_installed(origin: str, folders: tuple[str, ...]) -> bool:
    """Return whether a module's file is that of an installed library.

    A library may be in a folder of another environment: `uv run --with` and
    `--system-site-packages` put an environment on top of another one.

    Args:
        origin: Path of the module's file, or `built-in` or `frozen`, as in its spec.
        folders: Folders of this Python in which libraries are installed; see `library_folders`.
    """
    if origin in ("built-in", "frozen") or origin.startswith(folders):
        return True
    return not {"site-packages", "dist-packages"}.isdisjoint(Path(origin).parts)


def import_profile() -> dict[str, Any]:
    """Return the installed modules that this process has imported, and some of its environment.

    The key `environment` has only the variables that libraries read when they are imported.
    """
    folders = library_folders()
    modules: list[str] = []
    for name, module in list(sys.modules.items()):
        spec: Any = getattr(module, "__spec__", None)
        if getattr(spec, "name", None) == name and is_installed(str(spec.origin), folders):
            modules.append(name)
    environment: dict[str, str] = {}
    for name, value in os.environ.items():
        if _READ_AT_IMPORT.match(name):
            environment[name] = value
    return {"modules": modules, "environment": environment}


def _gpu_bytes() -> int | None:
    """Return the sum of the peaks of memory that torch has reserved on each GPU, in bytes.

    Return None if torch has not initialized CUDA.
    """
    cuda = sys.modules["torch"].cuda
    if not cuda.is_initialized():
        return None
    return int(sum(cuda.max_memory_reserved(number) for number in range(cuda.device_count())))


def _not_replicable() -> list[str]:
    """Return the names of operations whose results may differ if repeated, as torch has warned."""
    names: list[str] = sys.modules["sweeper.notebook_api.replicability"].not_replicable()
    return names


class NotebookFiles:
    """The files in the working folder and in its subfolders, but in no deeper ones.

    Folders where another file system is mounted are left out, because it may hang.

    Args:
        folder: Working folder of the kernel.
    """

    def __init__(self, folder: Path) -> None:
        self._folder = folder
        self._before = self._versions()

    def overwritten(self) -> list[str]:
        """Return the relative paths of the files that existed before the first cell and changed."""
        now = self._versions()
        return sorted(
            os.path.relpath(path, self._folder)
            for path, version in self._before.items()
            if now.get(path, version) != version
        )

    def _versions(self) -> dict[str, int | None]:
        """Return the time of the last change of each file in nanoseconds, by its path."""
        mounts = _tried(_mounted_folders) or set()
        beside = _tried(_entries, self._folder) or []
        entries = [*beside]
        for entry in beside:
            if len(entries) >= _MOST_ENTRIES:
                break
            if entry.is_dir(follow_symlinks=False) and entry.path not in mounts:
                entries += _tried(_entries, entry.path) or []
        versions = {}
        for entry in entries[:_MOST_ENTRIES]:
            if entry.is_file(follow_symlinks=False):
                changed = _tried(entry.stat)
                versions[entry.path] = changed and changed.st_mtime_ns
        return versions


def _entries(folder: Path | str) -> list[os.DirEntry[str]]:
    """Return at most `_MOST_ENTRIES` entries of a folder."""
    with os.scandir(folder) as entries:
        return list(islice(entries, _MOST_ENTRIES))


def _mounted_folders() -> set[str]:
    """Return the folders where file systems are mounted, on Linux."""
    with open("/proc/self/mounts", "rb") as lines:  # Special characters have octal escapes there.
        escaped = [line.split()[1].decode("unicode_escape") for line in lines]
        return {path.encode("latin-1").decode() for path in escaped}


def _end_in_order(kernel: Any) -> None:
    """Remove two reasons why a kernel may end late.

    First, ipykernel closes the thread that sends messages. The control thread, which has received
    the shutdown request, may still have a message to send, and would then wait forever. So the
    control thread is joined first. Second, ipykernel waits up to 14 s for child processes that have
    ended but whose exit code was not read. So these processes are left out of ipykernel's list.
    """
    atexit.register(kernel.parent.control_thread.join, _LAST_REQUEST_S)
    children = kernel._process_children
    kernel._process_children = lambda: [child for child in children() if child.status() != "zombie"]
