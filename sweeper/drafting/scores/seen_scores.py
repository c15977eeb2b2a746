"""Find the numbers in an executed notebook that may be its score, and rank them.

The numbers are values of variables, printed numbers, what libraries have logged, and what cells
display as their result. Each gets a rank, a direction (whether less or more is better) and doubts.
These follow from facts: whether the number comes after the training, on which data it was computed,
whether its name contains a known metric, and how its values have changed.
"""

from __future__ import annotations

import ast
import math
import re
from collections import defaultdict
from collections.abc import Iterable, Iterator, Sequence, Set
from dataclasses import dataclass, replace
from decimal import Decimal
from enum import StrEnum
from itertools import count
from typing import Any

from ...notebook_code.calls import last_name, last_names_called
from ...notebook_code.cell_code import parse_or_none
from ...notebook_code.own_training import takes_steps
from ...notebooks.metadata import BLANK, metadata_of
from ...notebooks.reading import REDRAWN, cell_tags, code_cells
from ...notebooks.research import INJECTED_TAG
from .evaluations import (
    COMPUTED,
    UNKNOWN,
    Evaluations,
    Meaning,
    Printing,
    is_over_folds,
    names_in,
    results_of,
    scoring_words,
)
from .metrics import (
    ORDER,
    SPLITS,
    Metric,
    metric_of,
    preference,
    split_of,
    trend_of,
    words_of,
)
from .printed import PrintedNumber, Text, bare_numbers, printed_numbers, trimmed
from .score_guesses import Code, Score, Source, reported_in

#: Words for the score of a model that is only compared with, or of one before its training.
_BASELINE = {*"baseline dummy naive initial chance untrained before constant".split()}
_MEANS = {"mean", "avg", "average"}
_BEST = {"best", "min", "max", "lowest", "highest"}
#: A number whose name has one of these words says nothing about a model's quality.
_NO_SCORE = {
    *"time elapsed seconds sec duration epoch epochs step steps iter iteration iterations n num "
    "count size batch len length shape total lr rate eta seed version device memory params "
    "parameters minutes threshold std stderr sem df coef ci".split()
}
#: A number whose name has one of these words says how much scores vary, so it is no score either.
_SPREAD = {"std", "stderr", "sem", "sd"}
#: Calls that train, in scikit-learn, Keras, torch's optimizers, boosters and other libraries.
_TRAINS = {
    *"fit fit_generator fit_transform_train partial_fit backward step train train_on_batch "
    "minimize apply_gradients apply_updates fit_one_cycle fine_tune learn cross_val_score "
    "cross_validate cross_val_predict fmin".split()
}
#: Functions and methods that print text.
_PRINTS = {*"print display write info debug log warning set_description set_postfix".split()}
#: Calls that train copies of a model, and leave the model itself as it is.
_CHANGES_NOTHING = {"cross_val_score", "cross_val_predict"}
_CROSS_VALIDATES = {"cross_val_score", "cross_validate"}
#: A printed number is taken for the value of a variable if the digits of both agree, and if at
#: least this many digits are printed.
_LEAST_DIGITS = 3
#: A name that is made from a label or an expression has at most its last five words (chosen).
_NAME_WORDS = 5
#: From this number of equal values on, a score counts as constant (chosen, not measured).
_LEAST_OF_CONSTANT = 3
#: Matches the part of an expression that takes only the last values of a list: `[-10:]`.
_LAST_VALUES = re.compile(r"\[-\w+:\]")
#: Matches the number that a booster gives to a data set, in the name of a logged series.
_NUMBERED_DATA = re.compile(r"valid(?:ation)?_(\d+)\b")
#: Matches names of logged series that are no scores.
_NEVER_A_SCORE = re.compile(r"runtime|per_second|flos|epoch$|^lr|learning_rate")


class Doubt(StrEnum):
    """What a person should know about a score before a sweep optimises it."""

    #: Computed from the data that the model was trained on.
    TRAINING = "of the training data"
    #: A loss that the training itself computes, which overfitting improves.
    TRAINING_LOSS = "a training loss"
    #: Computed from the test data, which a search should not see.
    TEST = "a test score"
    #: The score of a baseline, or a value before any training.
    BASELINE = "a baseline or an initial value"
    #: The same at each step of the training, so nothing seems to have an effect on it.
    CONSTANT = "the same at each step"
    #: Computed in the code before the training.
    EARLY = "computed before the training"
    #: Adds up the values of a loop, so it depends on the loop's length.
    SUM = "a sum over a loop"
    #: The value of the last batch or epoch of a training loop, so it is noisy.
    LAST = "the last value in a loop that trains"
    #: The value of one item, such as the last fold, and not of all.
    ITEM = "the value of the last item in a loop"
    #: The code does not show that any of the values to sweep changes it.
    UNREACHED = "no param is seen to lead to it"
    #: The code does not show that it is computed from the model's predictions.
    UNPROVEN = "not seen to be an evaluation of the model"
    #: Already at its best possible value.
    SATURATED = "the best value that it can have, so no trial can improve it"
    #: The direction has to be stated: `--score NAME:min` or `--score NAME:max`.
    UNKNOWN = "whether less or more is better is not known"


@dataclass(frozen=True, slots=True, kw_only=True)
class SeenScore(Score):
    """A number that a run of the notebook has computed and that may be its score.

    Attributes:
        cell: The code cell that gave the number last.
        values: All values in order; the last one is the score.
        words: Words of the number's name or label and of its code, in which metrics are looked for.
        doubts: What a person should know before a sweep optimises the score.
        rank: Sort key. The number with the smallest one is the likeliest score.
        group: Numbers with the same group are equally good choices as the score.
        is_count: Whether the number is a count, a time or the like, and no score.
        params: Names of the notebook's values that could be swept and that change the number.
        meaning: What the code shows about how the number is computed.
        printing: The value in the code that is printed. None if it is not known, and for numbers
            that are not printed.
        library: Library that has logged the number. Empty for other sources.
        is_mean: Whether the number is the mean of the values before it in `values`, which are items
            of an array or scores of folds.
    """

    cell: int
    values: Sequence[float]
    words: Sequence[str] = ()
    doubts: Sequence[Doubt] = ()
    rank: tuple[Any, ...] = ()
    group: tuple[Any, ...] = ()
    is_count: bool = False
    params: Set[str] = frozenset()
    meaning: Meaning = UNKNOWN
    printing: Printing | None = None
    library: str = ""
    is_mean: bool = False

    @property
    def value(self) -> float:
        """The score: the last of the number's values."""
        return self.values[-1]

    @property
    def expression(self) -> str:
        """The expression of a variable or of a part of one, as `acc` or `accs[-1]`."""
        return self.text or self.name

    @property
    def origin(self) -> str:
        """How the notebook gives the score, for people: `printed`, `logged by keras`."""
        match self.source:
            case Source.LOGGED:
                return f"logged by {self.library}"
            case Source.VARIABLE:
                return f"variable {self.expression}"
            case Source.PART:
                return self.expression
        return self.source

    @property
    def about(self) -> str:
        """The doubts about the score and where it comes from, for people."""
        many, n_values = [], len(self.values)
        if self.is_mean:
            many = [f"the mean of {n_values - 1} values"]
        elif n_values > 1:
            many = [f"the last of {n_values} values"]
        return ", ".join([*self.doubts, *many, self.origin])

    @property
    def remark(self) -> str:
        """Text about the score, with its value, for a comment in the drafted parameters file."""
        return f"{self.value:.6g}: {self.about}"


def seen_scores(
    node: Any, code: Code, *, literals: Iterable[str]
) -> tuple[list[SeenScore], list[SeenScore]]:
    """List the numbers in an executed notebook that may be its score.

    Args:
        node: An executed notebook. Its metadata has the numbers that the kernel recorded.
        code: Code of the research notebook.
        literals: Names of variables to which the notebook assigns only literals. They are no
            results.

    Returns:
        Two lists: the numbers that may be scores, the likeliest first; and all other numbers,
        because a person may choose any number as the score.
    """
    listed, others = _Run(node, code, {*literals}).ranked()
    doubts = [Doubt.UNPROVEN, Doubt.UNKNOWN]
    return listed, [replace(score, direction=None, doubts=doubts) for score in others]


def texts_of(node: Any) -> list[Text]:
    """Return what the cells of an executed notebook have printed, one `Text` for each output."""
    return [
        Text(
            cell=number,
            stream=output["name"],
            text=output["text"],
            is_redrawn=output["name"] in cell["metadata"].get(REDRAWN, ()),
        )
        for number, cell in enumerate(own_cells(node), 1)
        for output in cell.get("outputs", ())
        if output["output_type"] == "stream"
    ]


def own_cells(node: Any) -> list[Any]:
    """Return the code cells of an executed notebook, without the cell in which a sweep puts params.

    They are the code cells of the research notebook, in the same order.
    """
    return [cell for cell in code_cells(node) if INJECTED_TAG not in cell_tags(cell)]


def is_clear(scores: Sequence[SeenScore]) -> bool:
    """Return whether the first of ranked scores can be used without asking a person.

    It can if the notebook reports it. The result is also True if no param is seen to change the
    first score. Asking would not help: the draft is then refused for that reason.

    Any other first score must be finite, and must have no serious doubt and no rival. A rival is
    another score of the same group that depends on one of the same params. If the params of the
    first score are unknown, each score of its group is a rival. Two kinds of scores are no rivals:
    the same number under another name, and a score whose words differ only by `final`.

    False if there are no scores.
    """
    if not scores:
        return False
    first, others = scores[0], scores[1:]
    if first.source is Source.REPORTED or Doubt.UNREACHED in first.doubts:
        return True
    doubtful = {Doubt.UNKNOWN, Doubt.BASELINE, Doubt.EARLY, Doubt.ITEM, Doubt.UNPROVEN}
    rivals = [
        other
        for other in others
        if other.group == first.group
        and not _is_same_number(first, other)
        and (not first.params or first.params & other.params)
        # "Test acc" is printed at each epoch, and "Final test acc" after the last one.
        and {*other.words} ^ {*first.words} != {"final"}
    ]
    return not doubtful & {*first.doubts} and not rivals and math.isfinite(first.value)


def _is_same_number(first: SeenScore, other: SeenScore) -> bool:
    """Return whether two scores show the same number, one of them perhaps rounded.

    They do if they have the same value, and also the same cell or the same group.
    """
    is_same = first.cell == other.cell or first.group == other.group
    return is_same and _is_same_value(first, other)


def _is_same_value(first: SeenScore, other: SeenScore) -> bool:
    """Return whether two numbers have the same value. One may be rounded or in percent."""
    return _is_rounded(first.value, other.value, least=2) or _is_rounded(
        other.value, first.value, least=2
    )


class _Run:
    """One executed notebook, and what its code says about the numbers in it.

    Args:
        node: The executed notebook.
        code: Code of the research notebook.
        literals: Names of variables to which the notebook assigns only literals. They are no
            results.
    """

    def __init__(self, node: Any, code: Code, literals: set[str]) -> None:
        self._code = code
        #: For each statement, the names that it assigns or whose objects it changes.
        self._given = [
            _stored(node) | {*(code.changed_in_run(index) or ())}
            for index, (_, node) in enumerate(code.statements)
        ]
        #: Names that hold only plain values. A list that a later statement fills is left out,
        #: because it holds results.
        self._literals = literals.difference(
            *(
                given - names_in(node, ast.Store)
                for (_, node), given in zip(code.statements, self._given, strict=True)
            )
        )
        self._evaluations = Evaluations(code.statements)
        self._metadata = metadata_of(node) or BLANK
        self._number_of = {
            cell["execution_count"]: number for number, cell in enumerate(own_cells(node), 1)
        }
        self._texts = texts_of(node)
        self._trains = _training_statements(code)
        self._sums = _sums(code)
        #: Names of the losses that a training minimises: `loss` where it calls `loss.backward()`.
        self._minimized = {
            function.removesuffix(".backward")
            for _, function, *_ in code.calls
            if function.endswith(".backward")
        }
        #: Index of the last statement of each cell.
        self._ends = {cell: index for index, (cell, _) in enumerate(code.statements)}

    def ranked(self) -> tuple[list[SeenScore], list[SeenScore]]:
        """Return the numbers that may be scores, the likeliest first, and all other numbers."""
        variables = self._variables()
        found = self._without_logged_twice(
            [
                *self._reported(),
                *self._logged(),
                *self._merged(variables, self._printed()),
                *self._bare(variables),
            ]
        )
        kept = {(score.source, score.expression) for score in found}
        rest = [
            variable for variable in variables if (variable.source, variable.expression) not in kept
        ]
        possible = list[SeenScore]()
        for score in found:
            known = self._with_meaning(score)
            if known is not None and (score.source is Source.REPORTED or self._is_trained(known)):
                possible.append(self._judged(known))
            else:
                rest.append(score)
        by_name: dict[str, SeenScore] = {}
        _add_named(by_name, sorted(possible, key=lambda score: score.rank))
        likely = [score for score in by_name.values() if not score.is_count]
        listed = [score for score in likely if score.direction]
        if not listed:  # List all evaluations: a person has to choose one.
            listed = [
                score
                for score in likely
                if Doubt.EARLY not in score.doubts
                and (score.meaning.is_evaluation or not self._code.is_observed)
            ]
        _add_named(by_name, rest)
        for score in listed:
            del by_name[score.name]
        return listed, [*by_name.values()]

    def _without_logged_twice(self, scores: Sequence[SeenScore]) -> list[SeenScore]:
        """Return scores without the displayed ones whose number a library logs, too.

        A trial would have to compute a displayed score again. Equal numbers on different data are
        different scores.
        """
        logged = {
            (score.value, split_of(score.words))
            for score in scores
            if score.source is Source.LOGGED
        }
        return [
            score
            for score in scores
            if score.source is not Source.SHOWN
            or (score.value, split_of(score.words)) not in logged
        ]

    def _with_meaning(self, score: SeenScore) -> SeenScore | None:
        """Return a number with the meaning that the code shows: an evaluation, or unknown.

        None if the code shows that it is no score, such as an input or a state of the training.
        """
        if score.source in (Source.REPORTED, Source.LOGGED):
            return score
        if score.key == "pattern":
            return None if score.meaning.is_none else score
        root = _root_of(score.expression)
        node = self._code.statements[score.at][1]
        if _is_of_itself(node, root, self._literals) or self._evaluations.is_grid(root):
            return None
        tree = parse_or_none(score.expression)
        value = tree.body[0] if tree is not None and tree.body else None
        meaning = self._evaluations.of(value.value) if isinstance(value, ast.Expr) else UNKNOWN
        if meaning.is_none and self._code.is_observed:
            return None
        return replace(score, meaning=meaning)

    # --- the numbers that a run has shown -------------------------------------------------------

    def _reported(self) -> Iterator[SeenScore]:
        series, finals = self._metadata.series, self._metadata.finals
        given_at = {score.name: score.at for score in reported_in(self._code)}
        for name in dict.fromkeys([*series, *finals]):
            values = [finals[name]] if name in finals else series[name].values
            yield self._series(name, values, Source.REPORTED, given_at.get(name, 0))

    def _logged(self) -> Iterator[SeenScore]:
        logged = self._metadata.logged
        # Boosters number their data sets, as in `validation_0-logloss`, and stop early by the last
        # one. So the last one counts as validation data, and the others as training data.
        numbered = [int(match[1]) for match in map(_NUMBERED_DATA.match, logged) if match]
        for name, series in logged.items():
            if _NEVER_A_SCORE.search(name):
                continue
            found = self._series(name, series.values, Source.LOGGED)
            data = _NUMBERED_DATA.match(name)
            if data is not None and int(data[1]) != max(numbered):
                found = replace(found, words=["train", *found.words[1:]])
            yield replace(found, library=series.library)

    def _series(
        self, name: str, values: Sequence[float], source: Source, given_at: int = 0
    ) -> SeenScore:
        """Return a series of reported or logged values as a score.

        Its statement `at` is the last one that trains, or the notebook's last one if none trains.

        Args:
            given_at: Index of a statement that gives values of the series. If it is later, it
                becomes the score's `at`.
        """
        at = max(given_at, max(self._trains, default=len(self._code.statements) - 1))
        return SeenScore(
            name=name,
            source=source,
            cell=self._code.statements[at][0],
            at=at,
            values=list(values),
            words=words_of(name),
        )

    def _variables(self) -> list[SeenScore]:
        """List the recorded numbers of variables, their parts and displayed results.

        Variables that hold only literals, or that no top-level statement sets, are left out.
        """
        found: list[SeenScore] = []
        for expression, noted in self._metadata.numbers.items():
            cell = self._number_of.get(noted.cell)
            values = [float.fromhex(digits) for digits in noted.values]
            root = _root_of(expression)
            if cell is None or root in self._literals:
                continue
            if not root:
                found += self._shown(cell, expression, values)
                continue
            given_by = [index for index, given in enumerate(self._given) if root in given]
            if given_by:
                found.append(self._variable(expression, cell, given_by[-1], values))
        return found

    def _variable(self, expression: str, cell: int, at: int, values: list[float]) -> SeenScore:
        """Return a variable, or a part of one, as a score.

        Args:
            expression: Expression of the number, as `accs[-1]`.
            cell: The code cell that changed the number last.
            at: Index of the statement that gave the variable its value.
            values: Values of the number.
        """
        root = _root_of(expression)
        whole = expression.removesuffix("[-1]").removesuffix(".mean()")
        words = words_of(whole)
        name = root
        if whole != root:
            name = "_".join(dict.fromkeys(words[-_NAME_WORDS:])) or root
        is_mean = expression.endswith(".mean()")
        if expression.endswith("[-1]") and self._is_of_folds(at, whole):
            expression, is_mean = f"sum({whole}) / len({whole})", True
            values = [*values, sum(values) / len(values)]
        is_plain = expression == root
        return SeenScore(
            name=name,
            source=Source.VARIABLE if is_plain else Source.PART,
            cell=cell,
            at=at,
            values=values,
            key="" if is_plain else "expression",
            text="" if is_plain else expression,
            words=[*words, *_sources(self._code, at, root)],
            is_mean=is_mean,
        )

    def _shown(self, cell: int, suffix: str, values: list[float]) -> Iterator[SeenScore]:
        """Yield the number that a cell displays as its result, with an expression for it.

        Each trial evaluates the expression at its end. So yield nothing if a second evaluation
        would train a model or give another value.

        Args:
            cell: The code cell that displays the object.
            suffix: What follows the displayed object to get the number, as `.mean()`.
            values: All values of the number, in order.
        """
        at = self._ends.get(cell)
        node = None if at is None else self._code.statements[at][1]
        if at is None or not isinstance(node, ast.Expr) or isinstance(node.value, ast.Name):
            return
        trains_again = at in self._trains and not _calls(node) & _CHANGES_NOTHING
        is_constant = not names_in(node) - self._code.imported
        if trains_again or is_constant or not self._lasts(node, at):
            return
        text = ast.unparse(node.value) + suffix
        item = words_of(suffix.removesuffix(".mean()"))
        words = [*dict.fromkeys([*_call_words(node.value), *item])] or words_of(text)
        metric = metric_of(words) or metric_of(words_of(text))
        name = "_".join(item or (metric.name.split() if metric else words[-2:])) or "shown"
        yield SeenScore(
            name=name,
            source=Source.SHOWN,
            cell=cell,
            at=at,
            values=values,
            key="expression",
            text=text,
            words=words,
            is_mean=text.endswith(".mean()"),
            is_called="(" in text.removesuffix(".mean()"),
        )

    def _lasts(self, node: ast.AST, at: int) -> bool:
        """Return whether code gives the same number if it is evaluated again at the notebook's end.

        It does if no later statement assigns a name in the code, or changes its object.

        Args:
            node: The code.
            at: Index of the statement with the code.
        """
        return names_in(node).isdisjoint(set[str]().union(*self._given[at + 1 :]))

    def _is_of_folds(self, at: int, values: str) -> bool:
        """Return whether a list has one value for each fold of cross validation.

        If so, the mean is the score. A list with one value for each of several models does not
        count, because its mean describes no model.

        Args:
            at: Index of the statement that makes the list.
            values: Expression for the list. It may be an entry of a dict.
        """
        # The mean would be the expression `sum(…) / len(…)`, which fails if the notebook gives one
        # of these names to a variable.
        if {"sum", "len"} & set[str]().union(*self._given):
            return False
        node, name = self._code.statements[at][1], _root_of(values)
        loops = [part for part in ast.walk(node) if isinstance(part, ast.For | ast.While)]
        around = [loop for loop in loops if name in names_in(loop)]
        if around:
            is_keyed = values != name
            return is_over_folds(around[-1]) and (is_keyed or len(around) == 1)
        parts = [part for part in ast.walk(node) if isinstance(part, ast.comprehension)]
        return any(map(is_over_folds, parts)) if parts else bool(_calls(node) & _CROSS_VALIDATES)

    def _bare(self, variables: Sequence[SeenScore]) -> Iterator[SeenScore]:
        """Yield scores that cells print without a label.

        A score is yielded with the printed expression if that is a call which evaluates the model,
        and which trials can make again at the notebook's end. In the score's cell, each print call
        without a label must have printed exactly one number, outside of functions and loops.

        The last number without a label is yielded with a pattern, if the call that prints it is
        known. It is left out if a variable that the call prints has its value, or if a number with
        its value was yielded for the same cell.

        Args:
            variables: All variables.
        """
        alone = [
            printing
            for printing in self._evaluations.printings
            if not trimmed(printing.before.replace(COMPUTED, "")).strip()
        ]
        seen = 0
        numbers = bare_numbers(self._texts)
        for number in numbers:
            values, seen = number.values[seen:], len(number.values)
            here = [printing for printing in alone if self._cell_of(printing) == number.cell]
            is_each = len(here) == len(values)
            is_each &= all(printing.scope is None and not printing.loops for printing in here)
            found = list[SeenScore]()
            for printing, value in zip(here, values, strict=True) if is_each else ():
                score = self._printed_alone(printing, [value], number.cell)
                is_again = self._lasts(printing.value, printing.statement)
                is_call = isinstance(printing.value, ast.Call)
                if is_call and is_again and score.meaning.is_evaluation:
                    found.append(score)
            yield from found
            is_last = number is numbers[-1] and (is_each or len(here) == 1)
            if is_last and not any(score.value == values[-1] for score in found):
                last = self._printed_alone(here[-1], number.values, number.cell)
                if not any(
                    variable.value == last.value and _is_read_by(variable, here[-1])
                    for variable in variables
                ):
                    yield replace(last, key="pattern", text=number.pattern)

    def _printed_alone(self, printing: Printing, values: Sequence[float], cell: int) -> SeenScore:
        """Return a number that is printed without a label as a score."""
        meaning = self._evaluations.of(printing.value, printing.scope)
        words = self._words_of(printing)
        metric = metric_of(meaning.words) or metric_of(words)
        text = ast.unparse(printing.value)
        return SeenScore(
            name="_".join(metric.name.split()) if metric else "printed",
            source=Source.PRINTED,
            cell=cell,
            at=self._code.run_by(printing.statement),
            values=values,
            key="expression",
            text=text,
            words=words,
            meaning=meaning,
            printing=printing,
            is_called="(" in text,
        )

    def _words_of(self, printing: Printing) -> list[str]:
        """Return the words of the expression that is printed, and of the functions it calls."""
        return [*_call_words(printing.value, self._code), *words_of(ast.unparse(printing.value))]

    def _printed(self) -> Iterator[SeenScore]:
        printings = [
            (self._code.statements[printing.statement][0], printing)
            for printing in self._evaluations.printings
        ]
        for number in printed_numbers(self._texts, printings):
            printing = number.printing
            meaning = UNKNOWN
            if printing is not None and not isinstance(printing.value, ast.Constant):
                meaning = self._evaluations.of(printing.value, printing.scope)
            name, words = _named(number.label)
            if printing is not None and metric_of(words) is None:
                words += self._words_of(printing)
            yield SeenScore(
                name=name,
                source=Source.PRINTED,
                cell=number.cell,
                at=self._printed_by(number),
                values=number.values,
                key="pattern",
                text=number.pattern,
                words=words,
                meaning=meaning,
                printing=printing,
            )

    def _cell_of(self, printing: Printing) -> int:
        """Return the number of the code cell in which a print call runs."""
        return self._code.statements[self._code.run_by(printing.statement)][0]

    def _printed_by(self, number: PrintedNumber) -> int:
        """Return the index of the statement that prints a number.

        If the code does not show it, return the last statement of the number's cell that trains, or
        the cell's last statement if none trains.

        Several values, or a value that a function prints, may come from a callback of the training.
        For these, return the cell's last statement that trains if it is later.
        """
        cell = number.cell
        training = [at for at in self._trains if self._code.statements[at][0] == cell]
        printing = number.printing
        if printing is not None and self._cell_of(printing) == cell:
            at = self._code.run_by(printing.statement)
            is_alone = printing.scope is None and len(number.values) == 1
            return at if is_alone else max([at, *training])
        if training:
            return max(training)
        return max((end for at, end in self._ends.items() if at <= cell), default=0)

    def _merged(
        self, variables: Sequence[SeenScore], printed: Iterable[SeenScore]
    ) -> Iterator[SeenScore]:
        """Join printed numbers with the variables whose values they show.

        Yield each variable, with the words printed before its value. If a printed variable is a
        whole number, and neither its own words nor the printed ones have a metric, yield the
        printed numbers instead. Then yield the printed numbers that show no variable.
        """
        printed_as: defaultdict[str, list[SeenScore]] = defaultdict(list)
        others = list[SeenScore]()
        printed = [*printed]
        last_of = {id(number.printing): number for number in printed}
        for number in printed:
            shown = [variable for variable in variables if _is_shown_by(variable, number)]
            # A print in a loop over models prints one variable, whose value after the loop is the
            # number of the last model.
            is_at_top = number.printing is not None and number.printing.scope is None
            if not shown or (is_at_top and number is not last_of[id(number.printing)]):
                others.append(number)
                continue
            said = {*number.words}
            nearest = max(shown, key=lambda variable: len(said & {*variable.words}))
            printed_as[nearest.expression].append(number)
        for variable in variables:
            same = printed_as[variable.expression]
            words = [*variable.words, *(word for number in same for word in number.words)]
            if same and metric_of(words) is None and variable.value.is_integer():
                yield from same  # The label says more about a count than the variable's name.
                continue
            longest = max([variable, *same], key=lambda score: len(score.values))
            yield replace(variable, words=words, values=[*longest.values[:-1], variable.value])
        yield from others

    def _is_trained(self, score: SeenScore) -> bool:
        """Return whether a score depends on a statement that trains. True if that is not known."""
        if not self._code.is_observed or not self._trains:
            return True
        lines = self._code.lines(score)
        cells = [self._code.statements[at] for at in self._trains]
        return any((cell, node.lineno) in lines for cell, node in cells)

    # --- direction, doubts and rank of a score --------------------------------------------------

    def _judged(self, score: SeenScore) -> SeenScore:
        """Return a score with its direction, its doubts, its rank and its group."""
        words = [*score.words]
        if score.name in self._minimized and metric_of(words) is None:
            words.append("loss")
        words = _with_words(words, score.meaning)
        metric = metric_of(words)
        direction = self._direction(score, metric)
        doubts = self._doubts(score, words, metric, direction)
        is_reported = score.source is Source.REPORTED
        is_of_batch = self._is_of_batch(score)
        is_training = not {Doubt.TRAINING, Doubt.TRAINING_LOSS}.isdisjoint(doubts)
        is_last_item = score.text.endswith("[-1]")
        is_count = self._is_count(score, words, metric, direction)
        is_of_end = score.key == "" and self._takes_last_values(score)
        # The last item of a list, as the reward of one episode, says less than a mean.
        is_one_reward = direction == "maximize" and is_last_item
        is_one_reward &= _MEANS.isdisjoint(words)
        kind = (
            not is_reported,
            is_count,
            not {Doubt.BASELINE, Doubt.CONSTANT}.isdisjoint(doubts),
            is_of_batch or not {Doubt.EARLY, Doubt.SUM, Doubt.ITEM}.isdisjoint(doubts),
            metric is None,
            ORDER["train" if is_training else _split(words, self._node(score))],
        )
        is_best = not _BEST.isdisjoint(words)
        rank = (
            *kind,
            preference(metric, direction),
            is_best,
            not is_of_end,
            is_one_reward,
            -score.cell,
            score.key == "pattern",
            -score.at,
        )
        name = metric.name if metric else ""
        group: tuple[Any, ...] = (*kind, name, is_best, is_of_end, is_last_item)
        if is_reported:  # A notebook reports its scores on purpose, so each is as good a choice.
            group = (score.source,)
        return replace(
            score,
            direction=direction,
            doubts=doubts,
            rank=rank,
            group=group,
            is_count=is_count,
            is_of_batches=not {Doubt.SUM, Doubt.LAST}.isdisjoint(doubts),
            is_loss=direction == "minimize" and (metric is None or metric.is_weak),
        )

    def _node(self, score: SeenScore) -> ast.stmt:
        """Return the statement that computes or prints a score."""
        return self._code.statements[score.at][1]

    def _takes_last_values(self, score: SeenScore) -> bool:
        """Return whether a score uses the last values of a list only, as `mean(losses[-10:])`."""
        node = self._node(score)
        return isinstance(node, ast.Assign) and bool(_LAST_VALUES.search(ast.unparse(node.value)))

    def _doubts(
        self, score: SeenScore, words: Sequence[str], metric: Metric | None, direction: str | None
    ) -> list[Doubt]:
        """List what a person should know about a score.

        Args:
            score: The score.
            words: Words for its metric and its data.
            metric: The metric among these words. None if there is none.
            direction: Direction in which the score is better. None if it is not known.
        """
        node = self._node(score)
        split = _split(words, node)
        is_in_training = score.at in self._trains
        is_sum = score.key == "" and score.name in self._sums
        is_of_loop = score.key == "" and _is_of_loop(node, score.name)
        is_last_step = is_of_loop and is_in_training and split == "" and not is_sum
        is_early = self._code.run_by(score.at) < min(self._trains, default=0)
        is_loss = direction == "minimize" and metric is not None and metric.is_weak
        is_logged = score.source is Source.LOGGED
        is_recorded = is_loss or is_logged or (direction == "minimize" and is_in_training)
        # A variable that is assigned after the training has one value for each training, not one
        # for each step, so it is no training loss.
        is_variable = score.source is Source.VARIABLE
        is_of_steps = len(score.values) > 1 and (is_in_training or not is_variable)
        is_training = split == "train" or (
            split == "" and is_recorded and is_of_steps and bool(self._trains)
        )
        holds = {
            Doubt.BASELINE: not _BASELINE.isdisjoint(words),
            Doubt.CONSTANT: len(score.values) >= _LEAST_OF_CONSTANT and len({*score.values}) == 1,
            Doubt.EARLY: is_early and score.source is not Source.REPORTED,
            Doubt.SUM: is_sum,
            Doubt.LAST: self._is_of_batch(score) or is_last_step,
            Doubt.ITEM: self._is_item(score),
            Doubt.UNPROVEN: metric is None and direction is not None,
            Doubt.SATURATED: _is_saturated(score, metric),
            Doubt.TRAINING_LOSS: is_training and is_loss,
            Doubt.TRAINING: is_training and not is_loss,
            Doubt.TEST: split == "test",
            Doubt.UNKNOWN: direction is None,
        }
        return [doubt for doubt in holds if holds[doubt]]

    def _is_of_batch(self, score: SeenScore) -> bool:
        """Return whether a score is the value of the last batch in a loop over epochs."""
        if score.key == "":
            return score.name in _of_batches(self._node(score))
        is_in_batches = score.printing is not None and score.printing.loops > 1
        return score.key == "pattern" and is_in_batches and score.at in self._trains

    def _is_item(self, score: SeenScore) -> bool:
        """Return whether a score is the value of one item of a loop, such as the last fold."""
        node = self._node(score)
        if score.key == "":
            return (
                _is_of_loop(node, score.name)
                and score.at not in self._trains
                and score.name not in _added(node)
                and not self._code.passed_by(score)
            )
        if score.text.endswith("[-1]"):
            return _evaluates_folds(node)
        is_in_loop = score.printing is not None and score.printing.loops == 1
        return is_in_loop and len(score.values) > 1 and is_over_folds(node)

    def _is_count(
        self, score: SeenScore, words: Sequence[str], metric: Metric | None, direction: str | None
    ) -> bool:
        """Return whether a number is a count, a time, a spread or the like, and no score.

        `_doubts` describes the arguments.
        """
        is_weak = metric is None or metric.is_weak
        if not _SPREAD.isdisjoint(words_of(score.name)):
            return True
        if metric is None and all(value.is_integer() for value in score.values):
            return True
        # The reward of the last step says nothing about a policy.
        if is_weak and direction == "maximize" and self._is_of_batch(score):
            return True
        if score.meaning.is_evaluation and not (metric is None and score.meaning.is_any):
            return False
        numbers = _NO_SCORE.difference(metric.name.split() if metric else ())
        if is_weak:
            is_minimized = score.name in self._minimized
            return not is_minimized and not numbers.isdisjoint(_singular(words))
        # The number in `accuracy after epoch 5` is no accuracy.
        return score.key == "pattern" and not numbers.isdisjoint(_singular(words[-1:]))

    def _direction(self, score: SeenScore, metric: Metric | None) -> str | None:
        """Return in which direction a score is better. None if it is not known."""
        chosen = score.meaning.direction
        if score.meaning.is_evaluation and chosen is not None:
            return chosen
        trend = None if score.is_mean else trend_of(score.values)
        if metric is None:
            last = self._code.run_by(score.at)
            is_loop = isinstance(self._code.statements[last][1], ast.For | ast.While)
            return trend if is_loop or last in self._trains else None
        if metric.name == "score" and score.meaning.is_any:
            return None
        if metric.is_by_trend:
            return trend or chosen
        if metric.name == "score" and chosen is not None:
            return chosen
        return metric.direction


def _add_named(by_name: dict[str, SeenScore], scores: Iterable[SeenScore]) -> None:
    """Add scores under unique names, such as `accuracy_7` for a second `accuracy`, in cell 7.

    If the name is in use, a score is left out in two cases. One is that the score with this name
    has the same cell and the same value. The other is that the notebook reports the score, or a
    library logs it.

    Args:
        by_name: The scores so far, by name. This function adds the others.
        scores: The scores to add.
    """
    for score in scores:
        first = by_name.get(score.name)
        if first is None:
            by_name[score.name] = score
        elif (score.key or score.source is Source.VARIABLE) and not (
            first.cell == score.cell and _is_same_value(first, score)
        ):
            numbered = (f"{score.name}_{number}" for number in count(score.cell))
            name = next(name for name in numbered if name not in by_name)
            # Trials find a score by the name of its variable. Under a new name, it needs an entry.
            by_name[name] = replace(
                score,
                name=name,
                group=(name,),
                key=score.key or "expression",
                text=score.expression,
            )


def _split(words: Sequence[str], node: ast.stmt) -> str:
    """Return on which data a score was computed. The test rows of a fold are validation data.

    Args:
        words: Words of the score's name and code.
        node: The statement that computes or prints the score.

    Returns:
        `val`, `test`, `train` or an empty text, as `split_of` returns it.
    """
    split = split_of(words)
    return "val" if split == "test" and is_over_folds(node) else split


def _root_of(expression: str) -> str:
    """Return the name at the beginning of an expression: `scores` of `scores['val']`."""
    return re.split(r"\W", expression, maxsplit=1)[0]


def _is_read_by(variable: SeenScore, printing: Printing | None) -> bool:
    """Return whether a printed expression reads a variable. True if that is not known."""
    if printing is None or printing.scope is not None:
        return True
    return _root_of(variable.expression) in names_in(printing.value)


def _is_shown_by(variable: SeenScore, number: SeenScore) -> bool:
    """Return whether a printed number is the value of a variable, or the last item of a list.

    If the code shows the printed expression, it has to read this variable: another variable may
    have the same value by chance.
    """
    printing = number.printing
    is_whole = variable.source is Source.VARIABLE or "[-1]" in variable.text
    if not is_whole or number.cell < variable.cell or not _is_read_by(variable, printing):
        return False
    if printing is not None and names_in(printing.value) == {_root_of(variable.expression)}:
        return _is_rounded(number.value, variable.value, least=1)
    says_enough = metric_of(number.words) is not None or metric_of(variable.words) is None
    return says_enough and _is_rounded(number.value, variable.value)


def _with_words(words: Sequence[str], meaning: Meaning) -> list[str]:
    """Return the words of a score's name, or those of the metric that its code computes.

    The name's words are returned if they name the same metric as the code, or if they say more and
    have the same direction: `mse` where the code has squares of differences. They are also returned
    if the code shows no evaluation or no direction. Words for data (`val`) are always kept.
    """
    data = [word for word in meaning.words if word in SPLITS]
    if not meaning.is_evaluation or meaning.direction is None:
        return [*words, *data]
    named, shown = metric_of(words), metric_of(meaning.words)
    if named is not None and shown is not None:
        says_more = not meaning.is_named and (shown.is_weak or not named.is_weak)
        says_more |= named.name == "loss"  # a loss ranks after other metrics, whatever it computes
        if (says_more and named.direction == meaning.direction) or named.name == shown.name:
            return [*words, *data]
    others = SPLITS.keys() | _BASELINE | _BEST
    return [*(word for word in words if word in others), *meaning.words]


def _is_saturated(score: SeenScore, metric: Metric | None) -> bool:
    """Return whether a score is at the best value that its metric can have, such as accuracy 1."""
    if metric is None or (metric.is_weak and not score.meaning.is_named):
        return False
    is_share = metric.direction == "maximize" and score.value in (1.0, 100.0)
    return is_share or (metric.direction == "minimize" and score.value == 0.0)


def _is_of_itself(node: ast.AST, name: str, literals: Set[str]) -> bool:
    """Return whether code computes a variable only from itself and literals, as in `n = n + step`.

    The result is False if the code calls a function for it.

    Args:
        literals: Names of variables that hold literals, such as `step`.
    """
    values = [
        part.value
        for part in ast.walk(node)
        if isinstance(part, ast.Assign | ast.AugAssign) and name in _stored(part)
    ]
    read = set[str]().union(*map(names_in, values))
    return (
        name in read
        and not read - literals - {name}
        and not any(isinstance(part, ast.Call) for value in values for part in ast.walk(value))
    )


def _training_statements(code: Code) -> set[int]:
    """Return the indices of the top-level statements that train, or call functions that train.

    If there is none, return those of the loops that add to a variable (`+=`).
    """
    bodies = {**code.functions, **{node.name: node for node in code.helpers}}
    training = set[str]()

    def trains(node: ast.AST) -> bool:
        if _calls(node) & _TRAINS or _read(node) & training:
            return True
        may_step = (ast.For, ast.While, ast.FunctionDef, ast.AsyncFunctionDef)
        return isinstance(node, may_step) and takes_steps(node)

    while more := {name for name, body in bodies.items() if trains(body)} - training:
        training |= more
    found, adding = set[int](), set[int]()
    for index, (_, node) in enumerate(code.statements):
        if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef | ast.ClassDef):
            continue
        if trains(node):
            found.add(index)
        if isinstance(node, ast.For | ast.While) and _added(node):
            adding.add(index)
    return found or adding


def _evaluates_folds(node: ast.AST) -> bool:
    """Return whether a statement evaluates a model on folds of cross validation."""
    return bool(_calls(node) & _CROSS_VALIDATES) or any(map(is_over_folds, ast.walk(node)))


def _of_batches(loop: ast.stmt) -> set[str]:
    """Return the variables of a loop that only a loop inside of it assigns.

    After a training loop over epochs and batches, they hold values of the last batch. Variables
    that are changed with `+=` or the like are left out.
    """
    if not isinstance(loop, ast.For | ast.While):
        return set()
    parts = [*ast.walk(loop)]
    inner = [part for part in parts[1:] if isinstance(part, ast.For | ast.While)]
    inside = {part for each in inner for part in ast.walk(each)}
    outside = {
        part.id
        for part in parts
        if part not in inside and isinstance(part, ast.Name) and isinstance(part.ctx, ast.Store)
    }
    return names_in(loop, ast.Store) - outside - _added(loop)


def _is_of_loop(node: ast.AST, name: str) -> bool:
    """Return whether a statement is a loop, or a `with` in which a loop gives a name its value."""
    if isinstance(node, ast.With):
        giving = [part for part in node.body if name in _stored(part)]
        return bool(giving) and _is_of_loop(giving[-1], name)
    return isinstance(node, ast.For | ast.While)


def _added(node: ast.AST) -> set[str]:
    """Return the variables that code changes with `+=` or the like."""
    added = [part.target for part in ast.walk(node) if isinstance(part, ast.AugAssign)]
    return {target.id for target in added if isinstance(target, ast.Name)}


def _sums(code: Code) -> set[str]:
    """Return the variables to which a loop adds, without a division of the summand or the sum.

    Such a sum depends on the number of batches, and so on their size.
    """
    added, divided = set[str](), set[str]()
    for _, node in code.nodes:
        match node:
            case ast.For() | ast.While():
                added |= _added(node)
            case ast.AugAssign(target=ast.Name(id=name), op=operator, value=value):
                if isinstance(operator, ast.Div) or _divides(value):
                    divided.add(name)
            case ast.Assign(targets=[ast.Name(id=name)], value=value):
                if name in names_in(value) and _divides(value):
                    divided.add(name)
    return added - divided


def _divides(node: ast.AST) -> bool:
    return any(isinstance(part, ast.Div) for part in ast.walk(node))


def _calls(node: ast.AST) -> set[str]:
    """Return the names of called functions and methods: `fit` for `model.fit(…)`."""
    return last_names_called(ast.walk(node))


def _read(node: ast.AST) -> set[str]:
    """Return the names that code reads, and those of the functions and methods that it calls."""
    return _calls(node) | names_in(node, ast.Load)


def _stored(node: ast.AST) -> set[str]:
    """Return the names that a statement assigns, or whose items it sets or appends.

    Empty for the definition of a function or a class, which has names of its own.
    """
    if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef | ast.ClassDef):
        return set()
    names = names_in(node, ast.Store)
    for part in ast.walk(node):
        match part:
            case ast.Subscript(value=changed, ctx=ast.Store()):
                names |= names_in(changed)
            case ast.Call(func=ast.Attribute(attr="append" | "extend", value=ast.Name(id=name))):
                names.add(name)
    return names


def _sources(code: Code, at: int, name: str) -> list[str]:
    """Return the words in the names of the functions that compute a variable.

    The words of their option `scoring` are added.

    If the variable is one of several that a call returns, only words for the data count.

    Args:
        at: Index of the statement that gives the variable its value.
        name: Name of the variable.
    """
    for node in ast.walk(code.statements[at][1]):
        match node:
            case ast.Assign(targets=[ast.Name(id=target)], value=value) if target == name:
                return _call_words(value, code)
            case ast.Assign(targets=[target], value=value) if name in names_in(target):
                return [word for word in _call_words(value) if word in SPLITS]
    return []


def _call_words(node: ast.AST, code: Code | None = None) -> list[str]:
    """Return the words in the names of the functions that an expression calls.

    The words of their option `scoring` are added.

    Arguments are searched for calls, too, but not those of a function that the notebook defines,
    because they say nothing about its result. The expressions that it returns are searched instead.

    Args:
        code: The notebook's code. None if its functions are treated like those of libraries.
    """
    functions = {} if code is None else code.functions
    words: list[str] = []
    if isinstance(node, ast.Call):
        name = last_name(node.func)
        words += words_of(name)
        if name in functions:
            for result in results_of(functions[name]):
                words += _call_words(result)
            return words
        words += scoring_words(node)
    for part in ast.iter_child_nodes(node):
        words += _call_words(part, code)
    return words


def _singular(words: Sequence[str]) -> list[str]:
    return [*words, *(word.removesuffix("s") for word in words)]


def _named(label: str) -> tuple[str, list[str]]:
    """Return a name for a printed number, and the words of its label.

    The label is the text before the number, with `#` for each number in it. Words of counts before
    a `#` are removed first: `loss after epoch #` becomes `loss after #`. If the text after the last
    `#` has a metric, only words of this text and words for data, such as `val`, are used.
    """
    label = re.sub(
        r"([A-Za-z]+)\W*#", lambda it: "#" if it[1].lower() in _NO_SCORE else it[0], label
    )
    every, last = words_of(label), words_of(label.rpartition("#")[2])
    if metric_of(last) is not None:
        data = [word for word in every if word in SPLITS and word not in last]
        return "_".join(last[-_NAME_WORDS:]), [*data, *last]
    return "_".join(every[-_NAME_WORDS:]) or "printed", every


def _is_rounded(printed: float, value: float, *, least: int = _LEAST_DIGITS) -> bool:
    """Return whether a printed number is a given value, rounded or in percent.

    Args:
        least: Number of digits that have to be printed. Fewer may agree by chance.
    """
    if printed == value:
        return True
    digits = f"{printed:.15g}".lstrip("-0.").partition("e")[0]
    if len(digits.replace(".", "")) < least or not math.isfinite(printed - value):
        return False
    decimals = max(0, -int(Decimal(f"{printed:.15g}").as_tuple().exponent))
    step = 0.51 * 10**-decimals
    return any(abs(printed - factor * value) <= step for factor in (1, 100))
