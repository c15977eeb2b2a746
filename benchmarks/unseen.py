"""Check that trials use their params and record the right score, in notebooks that are new to us.

    uv run --with gpytorch,seaborn,statsmodels,tensorflow-cpu,tqdm,watermark,xgboost \
        benchmarks/unseen.py --half second [CLONES]

CLONES is a folder with clones of repositories as `owner/name`, by default `data/foreign`. Missing
repositories are cloned from GitHub, and each clone is set to its commit in `COMMITS`. The real
command sweeps each notebook in three trials, two of them with given params. Then the executed
notebooks are checked without any code of this package: their code may differ from the original
code only in the swept values, probes at the end show the values that were used, and the recorded
score must be the number that the notebook shows. If the command refuses a notebook, it is swept
again after the change that the message asks for (the remedy). The exit code is 1 if a notebook was
neither fine nor refused.

    benchmarks/unseen.py --only gpytorch --keep FOLDER            # keep the executed notebooks
    benchmarks/unseen.py --only gpytorch --keep FOLDER --judge    # check them again, run nothing
"""

from __future__ import annotations

import argparse
import ast
import copy
import enum
import json
import math
import re
import shutil
import signal
import subprocess
import sys
import tempfile
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from foreign import ROOT, NotRunnableError, cloned, finished
from unseen_notebooks import COMMITS, HALVES, NOTEBOOKS, Unseen

Notebook = dict[str, Any]
TRIALS = 3
#: Allowed relative difference (chosen) of a param that is a share of rows, because the notebook
#: rounds it to whole rows.
_SHARE_TOLERANCE = 0.1


class Verdict(enum.StrEnum):
    """The result of a notebook's sweep, from the best to the worst."""

    FINE = "fine at once"
    REMEDIED = "fine after its remedy"
    REFUSED = "refused"
    FAILED = "failed"
    WRONG_SCORE = "wrong score"
    UNUSED = "value not used"


_RANKS = {verdict: rank for rank, verdict in enumerate(Verdict)}


@dataclass(frozen=True, slots=True, kw_only=True)
class Finding:
    """A fault in an executed notebook. With `Verdict.FINE`, something that cannot be checked."""

    verdict: Verdict
    text: str


@dataclass(frozen=True, slots=True, kw_only=True)
class Judged:
    """The verdict on a notebook, the findings that led to it, and the message that refused it.

    Attributes:
        unseen: The notebook.
        verdict: The worst verdict of the findings.
        findings: Findings in the executed notebooks.
        refusal: Message with which the command refused the notebook. Empty if it did not.
    """

    unseen: Unseen
    verdict: Verdict
    findings: Sequence[Finding] = ()
    refusal: str = ""


@dataclass(frozen=True, slots=True, kw_only=True)
class Change:
    """An expression in the code that differs between the original and the executed notebook.

    Attributes:
        names: Names of the variables or arguments that get the value of the expression.
        before: Value in the original notebook.
        after: Value in the executed notebook.
    """

    names: Sequence[str]
    before: Any
    after: Any


@dataclass(frozen=True, slots=True, kw_only=True)
class Shown:
    """The score that a notebook shows in its outputs.

    Attributes:
        value: The number.
        slack: Largest difference to the exact score that rounding can explain.
        is_percentage: Whether a `%` follows the number, so that the score may be a hundredth of it.
    """

    value: float
    slack: float
    is_percentage: bool = False

    def agrees(self, recorded: float) -> bool:
        """Return whether the recorded score is equal to this number, except for rounding."""
        if abs(recorded - self.value) <= self.slack:
            return True
        return self.is_percentage and abs(recorded * 100 - self.value) <= self.slack


def main() -> int:
    """Sweep and check the notebooks, print the table and the totals, and return the exit code."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("clones", type=Path, nargs="?", default=ROOT / "data" / "foreign")
    parser.add_argument("--half", choices=["first", "second"])
    parser.add_argument(
        "--only", default="", help="notebooks whose name or repository contains this"
    )
    parser.add_argument("--jobs", type=int, default=1, help="notebooks at once")
    parser.add_argument("--limit", type=float, default=300.0, help="seconds for one sweep")
    parser.add_argument("--keep", type=Path, help="where executed notebooks are left")
    parser.add_argument("--judge", action="store_true", help="judge what is in --keep, run nothing")
    options = parser.parse_args()
    if options.judge and not options.keep:
        parser.error("--judge needs --keep")
    signal.signal(signal.SIGTERM, lambda *_: sys.exit(143))  # `finished` then ends its sweep.
    chosen = [
        unseen
        for unseen in NOTEBOOKS
        if options.only in f"{unseen.name} {unseen.repo}"
        and options.half in (None, HALVES[unseen.repo])
    ]
    verdicts: Counter[Verdict] = Counter()
    print("| notebook | repository | verdict |\n|---|---|---|", flush=True)
    with (
        tempfile.TemporaryDirectory(prefix="unseen-") as scratch,
        ThreadPoolExecutor(options.jobs) as pool,
    ):
        folder = options.keep.resolve() if options.keep else Path(scratch)
        for judged in pool.map(lambda unseen: measured(unseen, folder, options), chosen):
            unseen = judged.unseen
            print(f"| {unseen.name} | {unseen.repo} | {judged.verdict} |", flush=True)
            if judged.refusal:
                print(f"{unseen.name}: {judged.refusal}", file=sys.stderr)
            for finding in judged.findings:
                print(f"{unseen.name}: {finding.verdict}: {finding.text}", file=sys.stderr)
            verdicts[judged.verdict] += 1
    totals = ", ".join(f"{verdicts[verdict]} {verdict}" for verdict in Verdict if verdicts[verdict])
    print(f"\n{len(chosen)} notebooks: {totals}")
    return 1 if any(_RANKS[verdict] >= _RANKS[Verdict.FAILED] for verdict in verdicts) else 0


def measured(unseen: Unseen, folder: Path, options: argparse.Namespace) -> Judged:
    """Sweep a notebook, again with its remedy if the command refuses it, and return the verdict."""
    asked, remedy = folder / unseen.name / "asked", folder / unseen.name / "remedy"
    try:
        if not options.judge:
            swept(unseen, asked, {}, (), options)
        refusal = refused(asked)
        if not refusal:
            return judge(unseen, asked, {})
        if not unseen.renamed and not unseen.edits:
            return Judged(unseen=unseen, verdict=Verdict.REFUSED, refusal=refusal)
        if not options.judge:
            swept(unseen, remedy, unseen.renamed, unseen.edits, options)
        if again := refused(remedy):
            return Judged(unseen=unseen, verdict=Verdict.REFUSED, refusal=f"{refusal}\n{again}")
    except (NotRunnableError, OSError) as error:
        finding = Finding(verdict=Verdict.FAILED, text=str(error))
        return Judged(unseen=unseen, verdict=Verdict.FAILED, findings=[finding])
    judged = judge(unseen, remedy, unseen.renamed)
    verdict = Verdict.REMEDIED if judged.verdict is Verdict.FINE else judged.verdict
    return Judged(unseen=unseen, verdict=verdict, findings=judged.findings, refusal=refusal)


# --- one sweep ----------------------------------------------------------------------------------


def swept(
    unseen: Unseen,
    place: Path,
    renamed: Mapping[str, str | None],
    edits: Sequence[tuple[int, str, str]],
    options: argparse.Namespace,
) -> None:
    """Sweep a notebook inside of its repository.

    Args:
        unseen: The notebook.
        place: Folder for the executed notebooks and the output of the command.
        renamed: Other names for swept names. None leaves the name out.
        edits: Changes of the notebook: (cell, text, replacement).
        options: Options of the command line.

    Raises:
        NotRunnableError: There is no clone, or the notebook is another version.
    """
    source = at_commit(unseen.repo, options.clones) / unseen.path
    shutil.rmtree(place, ignore_errors=True)
    place.mkdir(parents=True)
    notebook = prepared(unseen, json.loads(source.read_text(encoding="utf-8")), edits)
    given, parameters = place / "given.ipynb", place / "p.yml"
    given.write_text(json.dumps(notebook), encoding="utf-8")
    parameters.write_text(json.dumps(parameters_of(unseen, renamed)), encoding="utf-8")
    # The notebook is swept in its own folder, because it may read files there.
    beside = source.with_name(f"unseen-{unseen.name}.ipynb")
    command = [sys.executable, str(ROOT / "notebook_hpo.py"), "-i", str(beside)]
    command += ["-o", str(place / "t.{run_id}.ipynb"), "-p", str(parameters)]
    command += ["-j", "1", "-k", "python3", "--study", "unseen"]
    try:
        shutil.copy(given, beside)
        output, complaint, code = finished(command, cwd=place, limit_s=options.limit)
    finally:
        beside.unlink(missing_ok=True)
    said = f"{output}{complaint}\nexit code {code}\n"
    (place / "said.txt").write_text(said, encoding="utf-8")


def at_commit(repo: str, clones: Path) -> Path:
    """Return the folder of a repository's clone after a checkout of its commit in `COMMITS`.

    Raises:
        NotRunnableError: The commit cannot be fetched or checked out.
    """
    clone, commit = cloned(repo, clones), COMMITS[repo]
    git = ["git", "-C", str(clone)]
    head = subprocess.run([*git, "rev-parse", "HEAD"], capture_output=True, text=True)
    if head.stdout.strip() == commit:
        return clone
    subprocess.run([*git, "fetch", "--quiet", "--depth", "1", "origin", commit])
    if subprocess.run([*git, "checkout", "--quiet", "--detach", commit]).returncode:
        raise NotRunnableError(f"{clone} is not at commit {commit}")
    return clone


def prepared(unseen: Unseen, original: Notebook, edits: Sequence[tuple[int, str, str]]) -> Notebook:
    """Return the notebook without outputs, with its edits, and with a last cell of probes.

    A probe prints the value of a swept param that the notebook has used.

    Raises:
        NotRunnableError: A cell does not contain the text that an edit replaces.
    """
    notebook = copy.deepcopy(original)
    for number, old, new in edits:
        source = "".join(notebook["cells"][number]["source"])
        if old not in source:
            raise NotRunnableError(f"cell {number} does not hold {old!r}")
        notebook["cells"][number]["source"] = source.replace(old, new)
    lines: list[str] = []
    for name, expression in unseen.probes.items():
        lines += ["try:", f"    print('PROBE', {name!r}, repr({expression}))"]
        lines += ["except Exception as _error:", f"    print('PROBE-ERROR', {name!r}, _error)"]
    if unseen.computed:
        lines += ["try:", f"    print('SHOWN', repr(float({unseen.computed})))"]
        lines += ["except Exception as _error:", "    print('SHOWN-ERROR', _error)"]
    if lines:
        cell = {"cell_type": "code", "metadata": {}, "source": "\n".join(lines)}
        with_ids = notebook.get("nbformat_minor", 0) >= 5
        notebook["cells"].append(cell | ({"id": "unseen-probe"} if with_ids else {}))
    for cell in notebook["cells"]:
        if cell["cell_type"] == "code":
            cell["outputs"], cell["execution_count"] = [], None
    return notebook


def parameters_of(unseen: Unseen, renamed: Mapping[str, str | None]) -> Mapping[str, Any]:
    """Return the content of the parameters file, with the params of the first two trials."""
    space: dict[str, Sequence[Any]] = {}
    for name, values in unseen.space.items():
        used = renamed.get(name, name)
        if used is not None:
            space[used] = values
    starts = [{name: values[trial] for name, values in space.items()} for trial in (0, 1)]
    return {
        "study": {"trials": TRIALS, "sampler": "random", "seed": 1},
        "objective": {unseen.score: unseen.direction},
        "scores": {unseen.score: unseen.source},
        "space": space,
        "start": starts,
        **({"fixed": unseen.fixed} if unseen.fixed else {}),
    }


def refused(place: Path) -> str:
    """Return the message with which the command refused a sweep. Empty if trials ran."""
    said = (place / "said.txt").read_text(encoding="utf-8").strip()
    return said if said.endswith("exit code 2") and not executed_in(place) else ""


def executed_in(place: Path) -> Sequence[Notebook]:
    """Return the executed notebooks in a folder, in the order of their trials."""
    paths = sorted(place.glob("t.[0-9][0-9][0-9][0-9].ipynb"))
    return [json.loads(path.read_text(encoding="utf-8")) for path in paths]


# --- the verdict --------------------------------------------------------------------------------


def judge(unseen: Unseen, place: Path, renamed: Mapping[str, str | None]) -> Judged:
    """Check the executed notebooks of one sweep, and return the worst verdict with all findings."""
    given = json.loads((place / "given.ipynb").read_text(encoding="utf-8"))
    said = (place / "said.txt").read_text(encoding="utf-8").strip()
    executed = executed_in(place)
    findings: list[Finding] = []
    if len(executed) != TRIALS or not said.endswith("exit code 0"):
        text = f"{len(executed)} executed notebooks, {said.splitlines()[-1]}"
        findings.append(Finding(verdict=Verdict.FAILED, text=text))
    originals = {renamed.get(name, name): name for name in unseen.space}
    for notebook in executed:
        noted = notebook["metadata"].get("sweeper", {})
        trial = noted.get("run_id")
        if noted.get("state") != "completed":
            text = f"{trial} {noted.get('state')}: {str(noted.get('message'))[:160]}"
            findings.append(Finding(verdict=Verdict.FAILED, text=text))
            continue
        seen = [
            *_code_findings(unseen, given, notebook, noted),
            *_probe_findings(unseen, notebook, noted["params"], originals),
            *_score_findings(unseen, notebook, noted["scores"]),
        ]
        findings += [Finding(verdict=each.verdict, text=f"{trial} {each.text}") for each in seen]
    findings += _end_findings([notebook["metadata"].get("sweeper", {}) for notebook in executed])
    worst = max((each.verdict for each in findings), key=_RANKS.__getitem__, default=Verdict.FINE)
    return Judged(unseen=unseen, verdict=worst, findings=findings)


def _code_findings(
    unseen: Unseen, given: Notebook, executed: Notebook, noted: Mapping[str, Any]
) -> Iterator[Finding]:
    """Check that only swept values differ in the code, and that each of them is in the code.

    Yields:
        Findings about other differences, and about swept values that are missing.
    """
    values = {**noted["params"], **unseen.fixed}
    # As documented, a notebook that assigns `seed` or `run_id` gets the trial's seed or run id.
    allowed = {"seed": noted.get("seed"), "run_id": noted.get("run_id"), **values}
    added = [cell for cell in executed["cells"] if _is_added(cell)]
    cells = [cell for cell in executed["cells"] if not _is_added(cell)]
    if len(cells) != len(given["cells"]):
        text = f"has {len(cells)} cells instead of {len(given['cells'])}"
        yield Finding(verdict=Verdict.UNUSED, text=text)
        return
    found: set[str] = set()
    for number, (old, new) in enumerate(zip(given["cells"], cells, strict=True)):
        source, other = "".join(old["source"]), "".join(new["source"])
        if source == other:
            continue
        before, after = parsed(source), parsed(other)
        if old["cell_type"] != "code" or before is None or after is None:
            yield Finding(verdict=Verdict.UNUSED, text=f"cell {number} has another text")
            continue
        for change in changes(before, after, (), owners(before)):
            users = {
                name
                for name, value in allowed.items()
                if name.split(".")[-1] in change.names and close(value, change.after)
            }
            found |= users
            if not users:
                text = f"cell {number}: {change.names} {change.before!r} is {change.after!r}"
                yield Finding(verdict=Verdict.UNUSED, text=text)
    for name, value in values.items():
        assignment = re.compile(rf"(?m)^{re.escape(name)} = ")
        if name in found or any(assignment.search("".join(cell["source"])) for cell in added):
            continue
        if not _holds_already(given, name, value):
            yield Finding(verdict=Verdict.UNUSED, text=f"{name}={value!r} is nowhere in the code")


def _probe_findings(
    unseen: Unseen,
    executed: Notebook,
    params: Mapping[str, Any],
    originals: Mapping[str | None, str],
) -> Iterator[Finding]:
    text = text_of(executed["cells"][-1])
    for name, value in params.items():
        probe = originals.get(name, name)
        if probe not in unseen.probes:
            continue
        match = re.search(rf"(?m)^PROBE {re.escape(probe)} (.*)$", text)
        if match is None:
            yield Finding(verdict=Verdict.FINE, text=f"the probe of {name} failed")
            continue
        arrived = _value_of(re.sub(r"^np\.\w+\((.*)\)$", r"\1", match[1]))
        expression = unseen.probes[probe]
        if not close(value, arrived, _SHARE_TOLERANCE if "/ len(" in expression else 1e-9):
            text = f"{name}={value!r}, but {expression} is {arrived!r}"
            yield Finding(verdict=Verdict.UNUSED, text=text)


def _score_findings(
    unseen: Unseen, executed: Notebook, scores: Mapping[str, float]
) -> Iterator[Finding]:
    recorded, shown = scores.get(unseen.score), shown_score(unseen, executed)
    if recorded is None:
        yield Finding(verdict=Verdict.WRONG_SCORE, text=f"has no score {unseen.score}")
    elif shown is None:
        yield Finding(verdict=Verdict.FINE, text=f"shows no {unseen.score}, recorded {recorded!r}")
    elif not shown.agrees(recorded):
        text = f"{unseen.score}={recorded!r}, but the notebook shows {shown.value!r}"
        yield Finding(verdict=Verdict.WRONG_SCORE, text=text)


def _end_findings(noted: Sequence[Mapping[str, Any]]) -> Iterator[Finding]:
    """Check the final values of swept variables, which the metadata of the trials contain.

    In each trial, the final value must be the swept value. Otherwise, it must at least differ
    between trials in the same way, because the notebook may compute with it.

    Args:
        noted: The package's metadata of each executed notebook.
    """
    pairs: dict[str, list[tuple[Any, Any]]] = {}
    for each in noted:
        at_end = each.get("values_at_end") or {}
        for name, value in each.get("params", {}).items():
            for key in (name, name.split(".")[-1]):
                if key in at_end:
                    pairs.setdefault(name, []).append((value, at_end[key]))
                    break
    for name, values in pairs.items():
        given, found = ({repr(pair[side]) for pair in values} for side in (0, 1))
        if not all(close(value, end) for value, end in values) and len(given) != len(found):
            yield Finding(verdict=Verdict.UNUSED, text=f"{name}: given and at the end {values}")


# --- code ---------------------------------------------------------------------------------------


def parsed(source: str) -> ast.Module | None:
    """Return the syntax tree of a cell, without its magics. None if the cell is not Python."""
    try:
        return ast.parse(re.sub(r"(?m)^(\s*)[%!].*", r"\1pass", source))
    except SyntaxError:
        return None


def owners(tree: ast.AST) -> Mapping[int, Sequence[str]]:
    """Return, by the `id` of each expression in a tree, the names that get its value."""
    found: dict[int, list[str]] = {}
    for node in ast.walk(tree):
        if isinstance(node, ast.Call):
            found.update({id(argument): [] for argument in node.args})
        for name, expression in given_values(node):
            found.setdefault(id(expression), []).append(name)
    return found


def given_values(node: ast.AST) -> Iterator[tuple[str, ast.expr]]:
    """Yield each name that a node assigns or passes, with the expression of its value."""
    pairs: list[tuple[ast.AST | None, ast.expr]] = []
    if isinstance(node, ast.Assign):
        for target in node.targets:
            if isinstance(target, ast.Tuple) and isinstance(node.value, ast.Tuple):
                pairs += zip(target.elts, node.value.elts, strict=False)
            else:
                pairs.append((target, node.value))
    elif isinstance(node, ast.AnnAssign) and node.value is not None:
        pairs = [(node.target, node.value)]
    elif isinstance(node, ast.keyword):
        pairs = [(ast.Constant(node.arg), node.value)]
    elif isinstance(node, ast.Dict):
        pairs = list(zip(node.keys, node.values, strict=True))
    elif isinstance(node, ast.Call) and node.args:
        pairs = [(node.func, node.args[0])]
    elif isinstance(node, ast.arguments):
        places = [*node.posonlyargs, *node.args]
        first = len(places) - len(node.defaults)
        pairs = [(ast.Constant(places[first + i].arg), d) for i, d in enumerate(node.defaults)]
        keywords = zip(node.kwonlyargs, node.kw_defaults, strict=True)
        pairs += [(ast.Constant(place.arg), d) for place, d in keywords if d is not None]
    for named, expression in pairs:
        if (name := _name_of(named)) is not None:
            yield name, expression


def _name_of(node: ast.AST | None) -> str | None:
    if isinstance(node, ast.Name):
        return node.id
    if isinstance(node, ast.Attribute):
        return node.attr
    if isinstance(node, ast.Constant) and isinstance(node.value, str):
        return node.value
    return None


def changes(
    before: ast.AST, after: ast.AST, names: Sequence[str], known: Mapping[int, Sequence[str]]
) -> Iterator[Change]:
    """Yield the smallest expressions in which two pieces of code differ.

    Args:
        before: Syntax tree of the original code.
        after: Syntax tree of the executed code.
        names: Names that get the value of the whole expression.
        known: Names for each expression of `before`, as `owners` returns them.
    """
    names = known.get(id(before), names)
    is_negative = isinstance(before, ast.UnaryOp) and ast.dump(before) != ast.dump(after)
    if is_negative or _shape(before) != _shape(after):
        yield Change(names=names, before=_value_of(before), after=_value_of(after))
        return
    children = zip(ast.iter_child_nodes(before), ast.iter_child_nodes(after), strict=True)
    for old, new in children:
        yield from changes(old, new, names, known)


def _shape(node: ast.AST) -> Sequence[Any]:
    """Return the type of a node and its fields, without its child nodes, for comparison."""
    fields: list[Any] = [type(node)]
    for name, value in ast.iter_fields(node):
        items = value if isinstance(value, list) else [value]
        kept = [type(item) if isinstance(item, ast.AST) else repr(item) for item in items]
        is_leaf = not any(isinstance(item, ast.AST) for item in items)
        fields.append((name, kept if is_leaf else len(items)))
    return fields


def _value_of(code: ast.AST | str) -> Any:
    """Return the value of a literal. For any other code, return the code as text."""
    try:
        return ast.literal_eval(code)  # Raises a ValueError for code that is no literal.
    except (ValueError, TypeError, SyntaxError):
        return code if isinstance(code, str) else ast.dump(code)[:80]


def _holds_already(given: Notebook, name: str, value: Any) -> bool:
    """Return whether the original notebook gives this value to a name, so that no code changes."""
    trees = [parsed("".join(c["source"])) for c in given["cells"] if c["cell_type"] == "code"]
    return any(
        owner == name.split(".")[-1] and close(_value_of(expression), value)
        for tree in trees
        if tree is not None
        for node in ast.walk(tree)
        for owner, expression in given_values(node)
    )


def _is_added(cell: Mapping[str, Any]) -> bool:
    return "injected-parameters" in cell["metadata"].get("tags", [])


def close(first: Any, second: Any, tolerance: float = 1e-9) -> bool:
    """Return whether two values are equal. Numbers may differ by the relative `tolerance`."""
    if any(isinstance(value, bool | str) for value in (first, second)):
        return bool(first == second)
    try:
        return math.isclose(float(first), float(second), rel_tol=tolerance, abs_tol=1e-15)
    except (TypeError, ValueError):
        return bool(first == second)


# --- outputs ------------------------------------------------------------------------------------


def text_of(cell: Mapping[str, Any]) -> str:
    """Return what a cell has printed and displayed, as plain text without terminal codes."""
    parts = []
    for output in cell.get("outputs", []):
        parts.append("".join(output.get("text") or output.get("data", {}).get("text/plain") or ""))
    text = re.sub(r"\x1b\[[0-9;?]*[A-Za-z]", "", "\n".join(parts))
    return text.replace("\r", "\n").replace("\x08", "")


def shown_score(unseen: Unseen, executed: Notebook) -> Shown | None:
    """Return the score that an executed notebook shows. None if it shows no score."""
    if unseen.computed:
        found = re.findall(r"(?m)^SHOWN (\S+)", text_of(executed["cells"][-1]))
        if not found:
            return None
        value = float(found[-1])
        return Shown(value=value, slack=abs(value) * 1e-6 + 1e-15)
    cells = executed["cells"][:-1] if unseen.probes else executed["cells"]
    text = "\n".join(text_of(cell) for cell in cells if cell["cell_type"] == "code")
    text = re.sub(r"np\.(?:float|int)\d+\(([^)]*)\)", r"\1", text)
    matches = list(re.finditer(unseen.shown, text))
    if not matches:
        return None
    last = matches[-1]
    number = last[1].rstrip(".")
    mantissa, _, exponent = number.lower().partition("e")
    unit = 10.0 ** (int(exponent or 0) - len(mantissa.partition(".")[2]))
    slack = unit * 0.5000001 + abs(float(number)) * 1e-6
    is_percentage = text[last.end(1) : last.end(1) + 1] == "%"
    return Shown(value=float(number), slack=slack, is_percentage=is_percentage)


if __name__ == "__main__":
    sys.exit(main())
