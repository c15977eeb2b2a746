"""Find the code of a notebook that need not do the same twice, with the line that does it.

The code is only read, so a finding is a suspicion: it explains a trial that did not repeat, and is
no fault of one that did.
"""

from __future__ import annotations

import ast
import datetime
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

from ...notebooks.cell_code import parse_or_none, plain_python

_CLOCKS = frozenset(
    "time.time time.time_ns time.perf_counter time.perf_counter_ns time.monotonic "
    "time.monotonic_ns time.process_time timeit.default_timer datetime.datetime.now "
    "datetime.datetime.utcnow datetime.datetime.today datetime.date.today".split()
)
_MACHINE = frozenset(
    "os.cpu_count os.process_cpu_count os.sched_getaffinity os.getloadavg os.getpid "
    "multiprocessing.cpu_count psutil.cpu_count psutil.virtual_memory joblib.cpu_count "
    "torch.cuda.device_count torch.cuda.mem_get_info".split()
)
_ALWAYS_NEW = frozenset(
    "os.urandom uuid.uuid1 uuid.uuid4 random.SystemRandom secrets.token_bytes secrets.token_hex "
    "secrets.randbelow secrets.randbits secrets.choice torch.seed".split()
)
#: New at each call that has no argument, or None for it.
_NEW_WITHOUT_SEED = frozenset(
    "numpy.random.default_rng numpy.random.RandomState numpy.random.SeedSequence "
    "numpy.random.PCG64 numpy.random.MT19937 numpy.random.seed "
    "random.Random random.seed".split()
)
_LISTINGS = frozenset("os.listdir os.scandir os.walk glob.glob glob.iglob".split())
_LISTING_METHODS = frozenset({"iterdir", "rglob"})
#: Calls in which the order of what they are given does not matter.
_ORDERLESS = frozenset("sorted len min max any all set frozenset".split())
#: Calls that put what they are given into an order.
_ORDERS = frozenset({"list", "tuple", "enumerate"})
#: What seeds the global generators of each library; the last part of the name is enough.
_SEEDS_ALL = frozenset({"seed_everything", "set_seed", "set_random_seed", "fix_seed", "set_seeds"})
_SEEDS = {
    "random": frozenset({"random.seed"}),
    "numpy.random": frozenset({"numpy.random.seed"}),
    "torch": frozenset({"torch.manual_seed", "torch.random.manual_seed"}),
}
#: Functions of the three libraries that draw nothing, though they are beside those that do.
_DRAWS_NOTHING = frozenset(
    "seed getstate setstate get_state set_state default_rng RandomState Random SystemRandom "
    "Generator SeedSequence PCG64 MT19937".split()
)
_TORCH_DRAWS = frozenset(
    "torch.rand torch.randn torch.randint torch.randperm torch.rand_like torch.randn_like "
    "torch.normal torch.bernoulli torch.multinomial torch.utils.data.random_split".split()
)


@dataclass(frozen=True, slots=True, kw_only=True)
class Suspect:
    """A line whose result need not be the same twice.

    Attributes:
        where: `code cell 3, line 2`, or a file and its line.
        what: the expression, why it need not repeat, and what would.
    """

    where: str
    what: str

    def __str__(self) -> str:
        return f"{self.where}: {self.what}"


def find_suspects(cells: Sequence[str], files: Mapping[str, str]) -> list[Suspect]:
    """List what need not repeat in a notebook's code cells and in the modules beside it.

    Args:
        cells: the sources of the code cells, in order.
        files: the source of each module, by the name that messages use.
    """
    named = [(f"code cell {n}", plain_python(source)) for n, source in enumerate(cells, 1)]
    named += list(files.items())
    trees = [(where, tree) for where, text in named if (tree := parse_or_none(text)) is not None]
    names = _Names(tree for _, tree in trees)
    found = [
        Suspect(where=f"{where}, line {line}", what=what)
        for where, tree in trees
        for line, what in sorted({*_found_in(tree, names)})
    ]
    return [*found, *_unseeded(trees, names)]


def changed_data(
    cells: Sequence[str], params: Mapping[str, object], folder: Path, *, since_s: float
) -> list[str]:
    """List the files that a notebook names and that were written after its trial had begun.

    Args:
        cells: the sources of the code cells; each text in them that is the path of a file counts.
        params: of the trial, which may name files as well.
        folder: in which relative paths begin.
        since_s: when the trial began, in seconds since 1970.
    """
    trees = [tree for source in cells if (tree := parse_or_none(plain_python(source))) is not None]
    texts = [
        node.value
        for tree in trees
        for node in ast.walk(tree)
        if isinstance(node, ast.Constant) and isinstance(node.value, str)
    ]
    texts += [value for value in params.values() if isinstance(value, str)]
    return [
        f"{text} was changed {at}, after the trial had begun"
        for text in dict.fromkeys(texts)
        if (at := _written_after(folder, text, since_s)) is not None
    ]


def _written_after(folder: Path, text: str, since_s: float) -> str | None:
    """When a file was last written, for people; None if before, or if there is no such file."""
    try:
        path = folder / Path(text).expanduser()
        if not text.strip() or not path.is_file() or path.stat().st_mtime <= since_s:
            return None
        written_s = path.stat().st_mtime
    except (OSError, ValueError, RuntimeError):  # a text that can be no path
        return None
    return datetime.datetime.fromtimestamp(written_s).isoformat(sep=" ", timespec="minutes")


class _Names:
    """What the names in the code stand for: imported modules, clocks that were read, sets.

    All cells share one namespace, and the modules are read as if they did.
    """

    def __init__(self, trees: Iterable[ast.Module]) -> None:
        self._imported: dict[str, str] = {}
        self.of_clocks: set[str] = set()
        self.of_sets: set[str] = set()
        nodes = [node for tree in trees for node in ast.walk(tree)]
        for node in nodes:
            self._note_imports(node)
        for _ in range(2):  # a name may be assigned from one that is assigned further down
            for node in nodes:
                self._note_assignment(node)

    def dotted(self, node: ast.AST) -> str:
        """The full name of what an expression names, such as `numpy.random.rand`; else empty."""
        if isinstance(node, ast.Name):
            return self._imported.get(node.id, node.id)
        if isinstance(node, ast.Attribute):
            before = self.dotted(node.value)
            return f"{before}.{node.attr}" if before else ""
        return ""

    def reads_clock(self, node: ast.AST) -> bool:
        """Whether an expression depends on the clock."""
        return any(
            (isinstance(it, ast.Call) and self.dotted(it.func) in _CLOCKS)
            or (isinstance(it, ast.Name) and it.id in self.of_clocks)
            for it in ast.walk(node)
        )

    def is_set(self, node: ast.AST) -> bool:
        """Whether an expression is a set."""
        if isinstance(node, ast.Call):
            return self.dotted(node.func) in ("set", "frozenset")
        is_named = isinstance(node, ast.Name) and node.id in self.of_sets
        return is_named or isinstance(node, ast.Set | ast.SetComp)

    def _note_imports(self, node: ast.AST) -> None:
        if isinstance(node, ast.Import):
            for alias in node.names:
                short = alias.name.partition(".")[0]
                self._imported[alias.asname or short] = alias.name if alias.asname else short
        elif isinstance(node, ast.ImportFrom) and node.module:
            for alias in node.names:
                self._imported[alias.asname or alias.name] = f"{node.module}.{alias.name}"

    def _note_assignment(self, node: ast.AST) -> None:
        if not isinstance(node, ast.Assign | ast.AnnAssign | ast.AugAssign) or node.value is None:
            return
        targets = node.targets if isinstance(node, ast.Assign) else [node.target]
        stored = {
            it.id for target in targets for it in ast.walk(target) if isinstance(it, ast.Name)
        }
        if self.reads_clock(node.value):
            self.of_clocks |= stored
        if self.is_set(node.value):
            self.of_sets |= stored


def _found_in(tree: ast.Module, names: _Names) -> Iterator[tuple[int, str]]:
    """The line and the words of each finding that needs no look at other cells."""
    harmless = _in_no_order(tree, names)
    for node in ast.walk(tree):
        if isinstance(node, ast.Call):
            yield from _of_call(node, names, is_ordered=id(node) not in harmless)
        loop = node if isinstance(node, ast.For | ast.AsyncFor | ast.comprehension) else None
        if loop is not None and names.is_set(loop.iter) and id(loop) not in harmless:
            yield loop.iter.lineno, _of_set(loop.iter)
        if isinstance(node, ast.Compare) and names.reads_clock(node):
            what = "decides by the clock; count steps or epochs instead"
            yield node.lineno, f"`{_short(node)}` {what}"


def _of_call(node: ast.Call, names: _Names, *, is_ordered: bool) -> Iterator[tuple[int, str]]:
    name, text = names.dotted(node.func), f"`{_short(node)}`"
    if name in _ALWAYS_NEW:
        yield node.lineno, f"{text} is another value each time"
    elif name in _NEW_WITHOUT_SEED and _has_no_seed(node):
        yield node.lineno, f"{text} has no seed; give it the trial's seed"
    elif name in _MACHINE:
        yield node.lineno, f"{text} depends on the machine; write the number down as a parameter"
    elif is_ordered and (name in _LISTINGS or _is_listing_method(node)):
        yield node.lineno, f"{text} lists files in no fixed order; put sorted(…) around it"
    elif is_ordered and name in _ORDERS and any(map(names.is_set, node.args[:1])):
        yield node.lineno, _of_set(node)


def _of_set(node: ast.AST) -> str:
    why = "goes through a set, whose order depends on where its objects lie in memory"
    return f"`{_short(node)}` {why}; put sorted(…) around it, or use a list"


def _has_no_seed(node: ast.Call) -> bool:
    stated = [*node.args, *(keyword.value for keyword in node.keywords)]
    return all(isinstance(value, ast.Constant) and value.value is None for value in stated)


def _is_listing_method(node: ast.Call) -> bool:
    return isinstance(node.func, ast.Attribute) and node.func.attr in _LISTING_METHODS


def _in_no_order(tree: ast.Module, names: _Names) -> set[int]:
    """The ids of nodes inside a call for which the order of its argument does not matter."""
    return {
        id(inner)
        for node in ast.walk(tree)
        if isinstance(node, ast.Call) and names.dotted(node.func) in _ORDERLESS
        for argument in node.args
        for inner in ast.walk(argument)
    }


def _unseeded(trees: Sequence[tuple[str, ast.Module]], names: _Names) -> Iterator[Suspect]:
    """Global generators that are drawn from and never seeded: the first line of each."""
    calls = [
        (where, node, names.dotted(node.func))
        for where, tree in trees
        for node in ast.walk(tree)
        if isinstance(node, ast.Call)
    ]
    called = {name for _, _, name in calls}
    if any(name.rpartition(".")[2] in _SEEDS_ALL for name in called):
        return
    for library, seeds in _SEEDS.items():
        if called & seeds:
            continue
        drawn = next((it for it in calls if _draws(it[2], library)), None)
        if drawn is not None:
            where, node, _ = drawn
            yield Suspect(
                where=f"{where}, line {node.lineno}",
                what=f"`{_short(node)}` draws from the global generator of {library}, which "
                "nothing seeds; call sweeper.seed_everything(seed) first",
            )


def _draws(name: str, library: str) -> bool:
    if library == "torch":
        return name in _TORCH_DRAWS or name.startswith("torch.nn.")
    before, _, last = name.rpartition(".")
    return before == library and last not in _DRAWS_NOTHING


def _short(node: ast.AST) -> str:
    text = ast.unparse(node)
    return text if len(text) <= 50 else text[:49] + "…"
