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
from collections.abc import Iterable, Iterator, Sequence, Set
from dataclasses import dataclass, replace
from decimal import Decimal
from enum import StrEnum
from itertools import count
from typing import Any

from ..notebooks.calls import last_name, last_names_called
from ..notebooks.cell_code import parse_or_none
from ..notebooks.metadata import BLANK, metadata_of
from ..notebooks.own_training import takes_steps
from ..notebooks.reading import REDRAWN, cell_tags, code_cells
from ..notebooks.research import INJECTED_TAG
from .evaluations import (
    COMPUTED,
    UNKNOWN,
    Meaning,
    Printing,
    data_in,
    is_over_folds,
    names_in,
    results_of,
)
from .metrics import OPPOSITE, ORDER, SPLITS, Metric, metric_of, split_of, trend_of, words_of
from .printed import PrintedNumber, Text, bare_numbers, printed_numbers, trimmed
from .score_guesses import Code, Score

_BASELINE = {*"baseline dummy naive initial chance untrained before constant".split()}
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
_NAME_WORDS = 5
_LEAST_OF_SERIES = 2
#: From this number of equal values on, a score counts as constant (chosen, not measured).
_LEAST_OF_CONSTANT = 3
#: Matches an expression that gets smaller where the score in it gets larger, as `1 - accuracy`.
_COMPLEMENT = re.compile(r"-|1(?:\.0)? - ")


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
class SeenScore:
    """A number that a run of the notebook has computed and that may be its score.

    Attributes:
        name: The name of the score in the parameters file.
        how: Where the number comes from, for people: `printed`, `variable acc`, …
        cell: The code cell that gave the number last.
        at: Index in `Code.statements` of the statement that computes or prints the number.
        values: All values in order; the last one is the score.
        key: Key of the score's entry under `scores` in the parameters file: `expression` or
            `pattern`. Empty if the score needs no entry, because trials find it by its name.
        text: The value of that key: the expression or the pattern.
        words: Words of the number's name or label and of its code, in which metrics are looked for.
        direction: Direction in which the score is better. None if it is not known.
        doubts: What a person should know before a sweep optimises the score.
        rank: Sort key. The number with the smallest one is the likeliest score.
        group: Numbers with the same group are equally good choices as the score.
        is_count: Whether the number is a count, a time or the like, and no score.
        is_loss: Whether the training minimises the number, as far as is known.
        params: Names of the notebook's values that could be swept and that change the number.
        meaning: What the code shows about how the number is computed.
        printing: The value in the code that is printed. None if it is not known, and for numbers
            that are not printed.
        is_variable: Whether the number is the value of a variable, and not of a part of one.
        is_logged: Whether a library has logged the number.
        is_mean: Whether the number is the mean of the values before it in `values`, which are items
            of an array or scores of folds.
        is_called: Whether each trial has to call functions of the notebook again to compute it.
    """

    name: str
    how: str
    cell: int
    at: int
    values: Sequence[float]
    key: str = ""
    text: str = ""
    words: Sequence[str] = ()
    direction: str | None = None
    doubts: Sequence[Doubt] = ()
    rank: tuple[Any, ...] = ()
    group: tuple[Any, ...] = ()
    is_count: bool = False
    is_loss: bool = False
    params: Set[str] = frozenset()
    meaning: Meaning = UNKNOWN
    printing: Printing | None = None
    is_variable: bool = False
    is_logged: bool = False
    is_mean: bool = False
    is_called: bool = False

    @property
    def value(self) -> float:
        """The score: the last of the number's values."""
        return self.values[-1]

    @property
    def about(self) -> str:
        """Where the score comes from and which doubts there are, for people."""
        many, n_values = [], len(self.values)
        if self.is_mean:
            many = [f"the mean of {n_values - 1} values"]
        elif n_values > 1:
            many = [f"the last of {n_values} values"]
        return ", ".join([*self.doubts, *many, self.how])

    def as_score(self, direction: str | None = None) -> Score:
        """Return the score in the form that a draft of a parameters file needs."""
        return Score(
            name=self.name,
            how=f"{self.value:.6g}: {self.about}",
            at=self.at,
            source=f"{self.key}: {self.text}" if self.key else "",
            better=direction or self.direction or "",
            is_of_batches=bool({Doubt.SUM, Doubt.LAST} & {*self.doubts}),
            is_loss=self.is_loss,
            is_called=self.is_called,
        )


def seen_scores(
    node: Any, code: Code, *, literals: Iterable[str]
) -> tuple[list[SeenScore], list[SeenScore]]:
    """List the numbers in an executed notebook that may be its score.

    Args:
        node: An executed notebook with the numbers that the kernel recorded of its variables.
        code: Code of the research notebook.
        literals: Names that the notebook assigns nothing but plain values, which are no results.

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
    """Return the code cells of an executed notebook, without the cell of params put in by a sweep.

    They are the code cells of the research notebook, in the same order.
    """
    return [cell for cell in code_cells(node) if INJECTED_TAG not in cell_tags(cell)]


def is_clear(scores: Sequence[SeenScore]) -> bool:
    """Return whether the first of ranked scores can be used without asking a person.

    It cannot if it has a serious doubt, or if another score has the same group and depends on the
    same params. A score that depends on other params belongs to another model. Two names of one
    number are one score. If no param changes the first score, the answer is True: a choice would
    not help, and the proposal is refused with that reason.
    """
    if not scores:
        return False
    first, others = scores[0], scores[1:]
    if first.group == ("reported",) or Doubt.UNREACHED in first.doubts:
        return True
    doubtful = {Doubt.UNKNOWN, Doubt.BASELINE, Doubt.EARLY, Doubt.ITEM, Doubt.UNPROVEN}
    rivals = [
        other
        for other in others
        if other.group == first.group
        and not _is_same_number(first, other)
        and (not first.params or first.params & other.params)
        and {*other.words} ^ {*first.words} != {"final"}
    ]
    return not doubtful & {*first.doubts} and not rivals and math.isfinite(first.value)


def _is_same_number(first: SeenScore, other: SeenScore) -> bool:
    """Return whether two scores are one number, which may be printed with fewer digits."""
    pairs = ((first.value, other.value), (other.value, first.value))
    is_same = first.cell == other.cell or first.group == other.group
    return is_same and any(_is_rounded(a, b, least=2) for a, b in pairs)


class _Run:
    """One executed notebook, and what its code says about the numbers in it."""

    def __init__(self, node: Any, code: Code, literals: set[str]) -> None:
        cells = own_cells(node)
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
        self._evaluations = code.evaluations()
        self._metadata = metadata_of(node) or BLANK
        self._number_of = {
            cell["execution_count"]: number
            for number, cell in enumerate(cells, 1)
            if cell.get("execution_count")
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
        self._ends = {cell: index for index, (cell, _) in enumerate(code.statements)}

    def ranked(self) -> tuple[list[SeenScore], list[SeenScore]]:
        """Return the numbers that may be scores, the likeliest first, and all other numbers."""
        variables, printed = self.variables(), self._printed()
        found = [*self._reported(), *self._logged(), *self._merged(variables, printed)]
        found += self._bare(variables)
        # If a library logs a number and a cell displays it, keep the logged one: a trial would have
        # to compute the displayed one again. Equal numbers on different data are different scores.
        logged = {(score.value, split_of(score.words)) for score in found if score.is_logged}
        found = [
            score
            for score in found
            if score.how != "shown" or (score.value, split_of(score.words)) not in logged
        ]
        shown = {score.how for score in found}
        possible = list[SeenScore]()
        rest = [variable for variable in variables if variable.how not in shown]
        for score in found:
            known = self._with_meaning(score)
            if known is not None and (score.how == "reported" or self._is_trained(known)):
                possible.append(self._judged(known))
            else:
                rest.append(score)
        by_name: dict[str, SeenScore] = {}
        self._add_named(by_name, sorted(possible, key=lambda score: score.rank))
        likely = [score for score in by_name.values() if not score.is_count]
        # If no score has a known direction, list all evaluations: a person has to choose one.
        listed = [score for score in likely if score.direction] or [
            score
            for score in likely
            if Doubt.EARLY not in score.doubts
            and (score.meaning.is_evaluation or not self._code.is_observed)
        ]
        self._add_named(by_name, rest)
        for score in listed:
            del by_name[score.name]
        return listed, [*by_name.values()]

    def _add_named(self, by_name: dict[str, SeenScore], scores: Iterable[SeenScore]) -> None:
        """Add scores under names of their own: `accuracy_7` for the second accuracy, in cell 7.

        A score is left out if it is a known score with the same name.
        """
        for score in scores:
            first = by_name.get(score.name)
            if first is None:
                by_name[score.name] = score
            elif (score.key or score.is_variable) and not self._is_one(first, score):
                numbered = (f"{score.name}_{number}" for number in count(score.cell))
                name = next(name for name in numbered if name not in by_name)
                # Trials find a variable by its name, so that one with another name needs an entry.
                key, text = score.key or "expression", score.text or score.name
                by_name[name] = replace(score, name=name, group=(name,), key=key, text=text)

    def _is_one(self, first: SeenScore, other: SeenScore) -> bool:
        """Return whether two numbers with the same name are one score.

        They are if they are equal, and the code does not show that they are computed differently.
        """
        pairs = ((first.value, other.value), (other.value, first.value))
        if not any(_is_rounded(a, b) for a, b in pairs):
            return False
        sources = [self._computed_by(score) for score in (first, other)]
        if None in sources:
            return True
        (code, at), (other_code, other_at) = sorted(
            (source for source in sources if source is not None), key=lambda source: source[1]
        )
        between = set[str]().union(*self._given[at + 1 : other_at])
        names = names_in(code)
        return ast.unparse(code) == ast.unparse(other_code) and names.isdisjoint(between)

    def _computed_by(self, score: SeenScore) -> tuple[ast.expr, int] | None:
        """Return the expression that computes a score, and its statement. None if unknown."""
        if score.printing is not None:
            is_at_top = score.printing.scope is None
            return (score.printing.value, score.printing.statement) if is_at_top else None
        match self._code.statements[score.at][1]:
            case ast.Assign(targets=[ast.Name()], value=value) if score.is_variable:
                return value, score.at
        return None

    def _with_meaning(self, score: SeenScore) -> SeenScore | None:
        """Add to a number what its code shows it to be: an evaluation, or unknown.

        Return None if it is an input or a state of the training, which is no score.
        """
        if score.how == "reported" or score.is_logged:
            return score
        if score.key == "pattern":
            return None if score.meaning.is_none else score
        text = score.text or score.name
        root = re.match(r"\w*", text)[0]  # type: ignore[index]  # it matches any text
        node = self._code.statements[score.at][1]
        if _is_of_itself(node, root, self._literals) or self._evaluations.is_grid(root):
            return None
        tree = parse_or_none(text)
        value = tree.body[0] if tree is not None and tree.body else None
        meaning = self._evaluations.of(value.value) if isinstance(value, ast.Expr) else UNKNOWN
        if meaning.is_none and self._code.is_observed:
            return None
        return replace(score, meaning=meaning)

    # --- the numbers that a run has shown -------------------------------------------------------

    def _reported(self) -> Iterator[SeenScore]:
        series, finals = self._metadata.series, self._metadata.finals
        for name in dict.fromkeys([*series, *finals]):
            values = [finals[name]] if name in finals else series[name].values
            yield self._series(name, values, "reported")

    def _logged(self) -> Iterator[SeenScore]:
        for name, series in self._metadata.logged.items():
            if not re.search(r"runtime|per_second|flos|epoch$|^lr|learning_rate", name):
                found = self._series(name, series.values, f"logged by {series.library}")
                yield replace(found, is_logged=True, words=self._logged_words(name))

    def _logged_words(self, name: str) -> list[str]:
        """Return the words of a logged series' name, with the data set's name for its number.

        Boosters number their data sets, as in `validation_0-logloss`. The code's `eval_set` says
        which data that is. If it does not, the last data set counts as validation data, because
        boosters stop early by it.
        """
        words, numbered = words_of(name), re.match(r"valid(?:ation)?_(\d+)\b", name)
        if numbered is None:
            return words
        for _, _, options, _ in reversed(self._code.calls):
            given = options.get("eval_set") or options.get("valid_sets")
            sets = None if given is None else self._evaluations.followed(given)
            if isinstance(sets, ast.List | ast.Tuple) and int(numbered[1]) < len(sets.elts):
                own = sets.elts[int(numbered[1])]
                data = data_in([own])
                if not data and own is sets.elts[-1]:
                    return words
                return [*data, *words[1:]]
        return words

    def _series(self, name: str, values: Sequence[float], how: str) -> SeenScore:
        at = max(self._trains, default=len(self._code.statements) - 1)
        found = [index for index, text in self._code.texts if name in text]
        at = max([*found, at]) if how == "reported" else at
        return SeenScore(
            name=name,
            how=how,
            cell=self._code.statements[at][0],
            at=at,
            values=list(values),
            words=words_of(name),
        )

    def variables(self) -> list[SeenScore]:
        """List the variables that statements of the notebook's top level compute."""
        found: list[SeenScore] = []
        for expression, noted in self._metadata.numbers.items():
            cell = self._number_of.get(noted.cell)
            values = [float.fromhex(digits) for digits in noted.values]
            if cell is None:
                continue
            root = re.match(r"\w*", expression)[0]  # type: ignore[index]  # it matches any text
            if not root:
                found += self._shown(cell, expression, values)
            elif root not in self._literals:
                found += self._variable(root, expression, cell, values)
        return found

    def _variable(
        self, root: str, expression: str, cell: int, values: list[float]
    ) -> Iterator[SeenScore]:
        given_by = [index for index, given in enumerate(self._given) if root in given]
        if not given_by:
            return
        is_plain = expression == root
        words = words_of(expression.replace("[-1]", "").replace(".mean()", ""))
        is_whole = re.sub(r"\[-1\]|\.mean\(\)", "", expression) == root
        values_from = _sources(self._code, given_by[-1], root)
        is_mean = expression.endswith(".mean()")
        folds = expression.removesuffix("[-1]")
        if expression != folds and self._is_of_folds(given_by[-1], folds):
            expression, is_mean = f"sum({folds}) / len({folds})", True
            values = [*values, sum(values) / len(values)]
        yield SeenScore(
            name=root if is_whole else "_".join(dict.fromkeys(words[-_NAME_WORDS:])) or root,
            how=f"variable {root}" if is_plain else expression,
            cell=cell,
            at=given_by[-1],
            values=values,
            key="" if is_plain else "expression",
            text="" if is_plain else expression,
            words=[*words, *values_from],
            is_variable=is_plain,
            is_mean=is_mean,
        )

    def _shown(self, cell: int, suffix: str, values: list[float]) -> Iterator[SeenScore]:
        """Yield the number that a cell displays as its result, as an expression for trials.

        Each trial evaluates the expression at its end. So yield nothing if a second evaluation
        would train a model or give another value.

        Args:
            suffix: What follows the displayed object to get the number, as `.mean()`.
        """
        at = self._ends.get(cell)
        if at is None:
            return
        node = self._code.statements[at][1]
        if at in self._trains and not _calls(node) & _CHANGES_NOTHING:
            return
        later, read = set[str]().union(*self._given[at + 1 :]), names_in(node)
        if not isinstance(node, ast.Expr) or read & later or isinstance(node.value, ast.Name):
            return
        if not read - self._code.imported:  # the expression is a constant
            return
        text = ast.unparse(node.value) + suffix
        item = words_of(suffix.removesuffix(".mean()"))
        words = [*dict.fromkeys([*_call_words(node.value), *item])] or words_of(text)
        metric = metric_of(words) or metric_of(words_of(text))
        name = "_".join(item or (metric.name.split() if metric else words[-2:])) or "shown"
        yield SeenScore(
            name=name,
            how="shown",
            cell=cell,
            at=at,
            values=values,
            key="expression",
            text=text,
            words=words,
            is_mean=text.endswith(".mean()"),
            is_called="(" in text.removesuffix(".mean()"),
        )

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
        node, name = self._code.statements[at][1], re.split(r"\W", values)[0]
        loops = [part for part in ast.walk(node) if isinstance(part, ast.For | ast.While)]
        around = [loop for loop in loops if name in names_in(loop)]
        if around:
            is_keyed = values != name
            return is_over_folds(around[-1]) and (is_keyed or len(around) == 1)
        parts = [part for part in ast.walk(node) if isinstance(part, ast.comprehension)]
        return any(map(is_over_folds, parts)) if parts else bool(_calls(node) & _CROSS_VALIDATES)

    def _bare(self, variables: Sequence[SeenScore]) -> Iterator[SeenScore]:
        """Yield the last number that a cell prints without a label, if it is no variable's value.

        The words of such a number are those of the printed expression. If each print call of the
        cell has printed exactly one number, earlier numbers can be matched with their expressions,
        and are yielded, too.

        Args:
            variables: All variables.
        """
        numbers = bare_numbers(self._texts)
        alone = [
            printing
            for printing in self._evaluations.printings
            if not trimmed(printing.before.replace(COMPUTED, "")).strip()
        ]
        seen = 0
        for number in numbers:
            values, seen = number.values[seen:], len(number.values)
            here = [it for it in alone if self._cell_of(it) == number.cell]
            own = [it for it in here if it.scope is None and not it.loops]
            is_clear = len(here) == 1 or not own or len(here) == len(values)
            is_each, is_last_known = len(own) == len(values) == len(here), False
            for printing, value in zip(own if is_each else [], values, strict=False):
                if isinstance(printing.value, ast.Call) and self._lasts(printing):
                    meaning = self._evaluations.of(printing.value)
                    if meaning.is_evaluation:
                        yield self._printed_alone(printing, meaning, [value], number.cell)
                        is_last_known = value == number.values[-1]
            is_last = number is numbers[-1] and is_clear and not is_last_known
            if is_last and here:
                printing = here[-1]
                meaning = self._evaluations.of(printing.value, printing.scope)
                last = self._printed_alone(printing, meaning, number.values, number.cell)
                if not any(
                    variable.value == last.value and _is_read_by(variable, printing)
                    for variable in variables
                ):
                    yield replace(last, key="pattern", text=number.pattern)

    def _cell_of(self, printing: Printing) -> int:
        return self._code.statements[self._code.run_by(printing.statement)][0]

    def _lasts(self, printing: Printing) -> bool:
        """Return whether no later statement changes the names in a printed expression.

        Then evaluating the expression at the end of the notebook gives the printed number.
        """
        later = self._given[printing.statement + 1 :]
        return names_in(printing.value).isdisjoint(set[str]().union(*later))

    def _printed_alone(
        self, printing: Printing, meaning: Meaning, values: Sequence[float], cell: int
    ) -> SeenScore:
        words = self._words_of(printing)
        metric = metric_of(meaning.words) or metric_of(words)
        text = ast.unparse(printing.value)
        return SeenScore(
            name="_".join(metric.name.split()) if metric else "printed",
            how="printed",
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

    def _printed(self) -> list[SeenScore]:
        found = []
        every = self._evaluations.printings
        printings = [(self._code.statements[it.statement][0], it) for it in every]
        for number in printed_numbers(self._texts, printings):
            printing = number.printing
            meaning = UNKNOWN
            if printing is not None and not isinstance(printing.value, ast.Constant):
                meaning = self._evaluations.of(printing.value, printing.scope)
            name, words = _named(number.label)
            if printing is not None and metric_of(words) is None:
                words += self._words_of(printing)
            score = SeenScore(
                name=name,
                how="printed",
                cell=number.cell,
                at=self._statement_of(number, printing),
                values=number.values,
                key="pattern",
                text=number.pattern,
                words=words,
                meaning=meaning,
                printing=printing,
            )
            found.append(score)
        return found

    def _statement_of(self, number: PrintedNumber, shown: Printing | None) -> int:
        """Return the index of the statement that prints a number, or a guess of it.

        It is the last statement of the number's cell that prints the number's label or calls a
        function that prints it. If there is none, it is the last one that trains; else that
        contains the label; else that prints anything; else the last one of the cell.
        """
        words, newline, _ = number.label.partition("\n")
        words = words.rpartition("#")[2].strip()
        statements = self._code.statements
        printing = [i for i, (_, node) in enumerate(statements) if _calls(node) & _PRINTS]
        having = {
            index: min(self._code.run_by(index) + len(newline), len(statements) - 1)
            for index, text in self._code.texts
            if words and words in text
        }
        prints_them = [at for index, at in having.items() if index in printing]
        training = [index for index in sorted(self._trains) if statements[index][0] == number.cell]
        ways = [prints_them, training, [*having.values()], printing]
        if number.is_column:  # the label is a table's head, which another statement may print
            ways = [training, printing]
        for known in ways:
            if near := [index for index in known if statements[index][0] == number.cell]:
                # Several values in a cell that trains were printed during the training, for example
                # by a callback, even if another statement seems to print them.
                is_inside = shown is not None and shown.scope is not None
                is_series = len(number.values) > 1 or is_inside
                return max([near[-1], *training]) if is_series else near[-1]
        return max((end for cell, end in self._ends.items() if cell <= number.cell), default=0)

    def _merged(
        self, variables: Sequence[SeenScore], printed: Sequence[SeenScore]
    ) -> Iterator[SeenScore]:
        """Join printed numbers with the variables whose values they show.

        Yield each variable, with the words printed before its value. Then yield the printed numbers
        that show no variable.
        """
        shown: dict[int, list[SeenScore]] = {
            id(variable): []
            for variable in variables
            if variable.key == "" or "[-1]" in variable.text
        }
        last_of = {id(number.printing): number for number in printed}
        others = list[SeenScore]()
        for number in printed:
            said = {*number.words}
            near = [variable for variable in variables if id(variable) in shown]
            near = [variable for variable in near if _is_shown_by(variable, number)]
            near.sort(key=lambda variable: len(said & {*variable.words}), reverse=True)
            # A print in a loop over models prints one variable, whose value after the loop is the
            # number of the last model.
            is_at_top = number.printing is not None and number.printing.scope is None
            is_passed = is_at_top and number is not last_of[id(number.printing)]
            (shown[id(near[0])] if near and not is_passed else others).append(number)
        for variable in variables:
            same = shown.get(id(variable), [])
            if not same:
                yield variable
                continue
            words = [*variable.words, *(word for number in same for word in number.words)]
            if metric_of(words) is None and variable.value.is_integer():
                yield from same  # the label says more about a whole number than the variable's name
                continue
            values = max([variable.values, *(number.values for number in same)], key=len)
            yield replace(variable, words=words, values=[*values[:-1], variable.value])
        yield from others

    def _is_of_the_end(self, score: SeenScore) -> bool:
        """Return whether a score uses the last values of a list only, as `mean(losses[-10:])`."""
        node = self._code.statements[score.at][1]
        return score.key == "" and any(
            isinstance(part, ast.Slice) and isinstance(part.lower, ast.UnaryOp) and not part.upper
            for value in [getattr(node, "value", None)]
            if isinstance(node, ast.Assign) and isinstance(value, ast.expr)
            for part in ast.walk(value)
        )

    def _is_trained(self, score: SeenScore) -> bool:
        """Return whether a score depends on a statement that trains. True if that is not known."""
        if not self._code.is_observed or not self._trains:
            return True
        lines = self._code.lines(score.as_score())
        cells = [self._code.statements[at] for at in self._trains]
        return any((cell, node.lineno) in lines for cell, node in cells)

    # --- direction, doubts and rank of a score --------------------------------------------------

    def _judged(self, score: SeenScore) -> SeenScore:
        """Give a score its direction, its doubts and its rank."""
        words = [*score.words]
        is_minimized = score.name in self._minimized
        if is_minimized and metric_of(words) is None:
            words.append("loss")
        words = _with_words(words, score.meaning)
        metric = metric_of(words)
        split = split_of(words)
        trend = None if score.is_mean else trend_of(score.values)
        direction = self._direction(score, metric, trend)
        is_reported = score.how == "reported"
        is_baseline = bool(_BASELINE & {*words})
        first = min(self._trains, default=0)
        is_early = self._code.run_by(score.at) < first and not is_reported
        is_sum = score.key == "" and score.name in self._sums
        node = self._code.statements[score.at][1]
        is_loop = _is_of_loop(node, score.name)
        n_values = len(score.values)
        is_constant = n_values >= _LEAST_OF_CONSTANT and len({*score.values}) == 1
        is_plain = score.key == "" and split == "" and not is_sum
        is_of_batch = score.key == "" and score.name in _of_batches(node)
        n_loops = score.printing.loops if score.key == "pattern" and score.printing else 0
        is_of_batch |= n_loops > 1 and score.at in self._trains
        is_item = is_loop and score.key == "" and score.at not in self._trains and not is_sum
        is_item = is_item and not self._code.passed_by(score.as_score())
        is_item = is_item and score.name not in _added(node)
        is_item |= score.text.endswith("[-1]") and _evaluates_folds(node)
        is_item |= n_loops == 1 and n_values > 1 and is_over_folds(node)
        is_last = is_of_batch or (is_plain and is_loop and score.at in self._trains)
        is_loss = metric is not None and metric.is_weak and direction == "minimize"
        is_recorded = direction == "minimize" and score.at in self._trains
        is_series = (
            (is_loss or is_recorded or score.is_logged) and split == "" and len(score.values) > 1
        )
        # A variable that is assigned after the training has one value for each training, not one
        # for each step, so it is no training loss.
        is_series &= score.at in self._trains or not score.is_variable
        is_training = split == "train" or (is_series and bool(self._trains))
        doubts = [
            doubt
            for doubt, holds in {
                Doubt.BASELINE: is_baseline,
                Doubt.CONSTANT: is_constant,
                Doubt.EARLY: is_early,
                Doubt.SUM: is_sum,
                Doubt.LAST: is_last,
                Doubt.ITEM: is_item,
                Doubt.UNPROVEN: metric is None and direction is not None,
                Doubt.SATURATED: _is_saturated(score, metric),
                Doubt.TRAINING_LOSS: is_training and is_loss,
                Doubt.TRAINING: is_training and not is_loss,
                Doubt.TEST: split == "test",
                Doubt.UNKNOWN: direction is None,
            }.items()
            if holds
        ]
        is_weak = metric is None or metric.is_weak
        numbers = _NO_SCORE.difference(metric.name.split() if metric else ())
        is_number_only = is_weak and not is_minimized and bool(numbers & {*_singular(words)})
        is_unnamed = score.meaning.is_any and metric is None
        is_number_only &= is_unnamed or not score.meaning.is_evaluation
        is_number_only |= bool(_SPREAD & {*words_of(score.name)})
        if score.key == "pattern" and "per" not in words and not score.meaning.is_evaluation:
            # The number in `accuracy after epoch 5` is no accuracy.
            is_number_only |= bool(numbers & {*_singular(words[-1:])})
        # The reward of the last step says nothing about a policy.
        is_number_only |= is_of_batch and is_weak and direction == "maximize"
        is_whole = metric is None and all(value.is_integer() for value in score.values)
        kind = 3 if metric is None else 1 + metric.is_weak if direction == "minimize" else 0
        kind = 4 if metric is None and direction is None else kind
        is_partial = metric is not None and metric.is_partial
        order = ORDER["train" if is_training else split]
        is_last_item = score.text.endswith("[-1]")
        rank = (
            not is_reported,
            is_number_only or is_whole,
            is_baseline or is_constant,
            is_early or is_sum or is_of_batch or is_item,
            metric is None,
            order,
            kind if metric is None or metric.is_weak else int(is_partial),
            bool(_BEST & {*words}),
            not self._is_of_the_end(score),
            # The last item of a list, as the reward of one episode, says less than a mean.
            direction == "maximize" and is_last_item and not {"mean", "avg", "average"} & {*words},
            -score.cell,
            score.key == "pattern",
            -score.at,
        )
        kinds = (*rank[:6], metric and metric.name, *rank[7:9], is_last_item)
        group = ("reported",) if is_reported else kinds
        return replace(
            score,
            direction=direction,
            doubts=doubts,
            rank=rank,
            group=group,
            is_count=is_number_only or is_whole,
            is_loss=direction == "minimize" and is_weak,
        )

    def _direction(self, score: SeenScore, metric: Metric | None, trend: str | None) -> str | None:
        chosen = score.meaning.direction
        if score.meaning.is_evaluation and chosen is not None:
            return chosen
        if metric is None:
            last = self._code.run_by(score.at)
            loops = isinstance(self._code.statements[last][1], ast.For | ast.While)
            return trend if loops or last in self._trains else None
        if score.meaning.is_any and metric.name == "score":
            return None
        direction = metric.direction
        if metric.is_by_trend:
            return trend or chosen
        if metric.name == "score" and chosen is not None:
            return chosen
        node = self._code.statements[score.at][1] if score.key == "expression" else None
        is_negated = node is not None and score.text.startswith("-")
        is_error = direction == "minimize" and not {"nll", "likelihood"} & {*metric.name.split()}
        # An error below zero was multiplied by -1, like scikit-learn's `neg_mean_squared_error`.
        if is_negated or (is_error and score.value < 0 and "neg" in score.words):
            return OPPOSITE[direction]
        return direction


def _root_of(variable: SeenScore) -> str:
    """Return the name at the beginning of a variable's expression: `scores` of `scores['val']`."""
    return re.split(r"\W", variable.text or variable.name)[0]


def _is_read_by(variable: SeenScore, printing: Printing | None) -> bool:
    """Return whether a printed expression reads a variable. True if the code does not show it."""
    if printing is None or printing.scope is not None:
        return True
    return _root_of(variable) in names_in(printing.value)


def _is_shown_by(variable: SeenScore, number: SeenScore) -> bool:
    """Return whether a printed number is the value of a variable.

    If the code shows what is printed, it has to be this variable: another one may have the same
    value by chance.
    """
    printing = number.printing
    if number.cell < variable.cell or not _is_read_by(variable, printing):
        return False
    if printing is not None and names_in(printing.value) == {_root_of(variable)}:
        return _is_rounded(number.value, variable.value, least=1)
    says_enough = metric_of(number.words) is not None or metric_of(variable.words) is None
    return says_enough and _is_rounded(number.value, variable.value)


def _with_words(words: Sequence[str], meaning: Meaning) -> list[str]:
    """Return the words of a score's name, or those of the metric that its code computes.

    The name's words are kept if they agree with the code, and if they say more than the code: `mse`
    where the code has squares of differences. Words for the data, such as `val`, are kept, too.
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
    others = SPLITS.keys() | _BASELINE | _BEST | {"neg"}
    return [*(word for word in words if word in others), *meaning.words]


def _is_saturated(score: SeenScore, metric: Metric | None) -> bool:
    """Return whether a score is at the best value that its metric can have, such as accuracy 1."""
    if metric is None or (metric.is_weak and not score.meaning.is_named):
        return False
    is_share = metric.direction == "maximize" and score.value in (1.0, 100.0)
    return is_share or (metric.direction == "minimize" and score.value == 0.0)


def _is_of_itself(node: ast.AST, name: str, literals: Set[str]) -> bool:
    """Return whether code computes a variable from itself and literals alone, as a counter."""
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
    training = {
        name for name, body in bodies.items() if _calls(body) & _TRAINS or takes_steps(body)
    }
    while True:
        more = {name for name, body in bodies.items() if _read(body) & training} - training
        if not more:
            break
        training |= more
    found = {
        index
        for index, (_, node) in enumerate(code.statements)
        if not isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef | ast.ClassDef)
        and (
            _calls(node) & _TRAINS
            or _read(node) & training
            or (isinstance(node, ast.For | ast.While) and takes_steps(node))
        )
    }
    return found or {
        index
        for index, (_, node) in enumerate(code.statements)
        if isinstance(node, ast.For | ast.While)
        and any(isinstance(part, ast.AugAssign) for part in ast.walk(node))
    }


def _evaluates_folds(node: ast.AST) -> bool:
    """Return whether a statement evaluates a model on folds of cross validation."""
    return bool(_calls(node) & _CROSS_VALIDATES) or any(map(is_over_folds, ast.walk(node)))


def _loops_in(loop: ast.AST) -> list[ast.For | ast.While]:
    """Return the loops inside of a loop."""
    loops = (part for part in ast.walk(loop) if isinstance(part, ast.For | ast.While))
    return [part for part in loops if part is not loop]


def _of_batches(loop: ast.stmt) -> set[str]:
    """Return the variables that only an inner loop assigns.

    After a training loop over epochs and batches, they hold values of the last batch.
    """
    if not isinstance(loop, ast.For | ast.While):
        return set()
    inside = {part for each in _loops_in(loop) for part in ast.walk(each)}
    names = [
        part
        for part in ast.walk(loop)
        if isinstance(part, ast.Name) and isinstance(part.ctx, ast.Store)
    ]
    sums = {part.target for part in inside if isinstance(part, ast.AugAssign)}
    outside = {name.id for name in names if name not in inside or name in sums}
    return {name.id for name in names} - outside


def _is_of_loop(node: ast.AST, name: str) -> bool:
    """Return whether a statement is a loop, or a `with` in which a loop gives a name its value."""
    if isinstance(node, ast.With):
        giving = [part for part in node.body if name in _stored(part)]
        return bool(giving) and _is_of_loop(giving[-1], name)
    return isinstance(node, ast.For | ast.While)


def _added(node: ast.AST) -> set[str]:
    """Return the variables that code changes with `+=` or the like."""
    added = (part.target for part in ast.walk(node) if isinstance(part, ast.AugAssign))
    return {target.id for target in added if isinstance(target, ast.Name)}


def _sums(code: Code) -> set[str]:
    """Return the variables to which a loop adds, and which are not divided by a count later.

    Such a sum depends on the number of batches, and so on their size.
    """
    added, divided = set[str](), set[str]()
    for _, node in code.nodes:
        match node:
            case ast.For() | ast.While():
                for part in ast.walk(node):
                    match part:
                        case ast.AugAssign(target=ast.Name(id=name), op=ast.Add(), value=value):
                            added.add(name)
                            if any(isinstance(inner, ast.Div) for inner in ast.walk(value)):
                                divided.add(name)
            case ast.AugAssign(target=ast.Name(id=name), op=ast.Div()):
                divided.add(name)
            case ast.Assign(targets=[ast.Name(id=name)], value=value):
                parts = [*ast.walk(value)]
                is_read = any(isinstance(part, ast.Name) and part.id == name for part in parts)
                if is_read and any(isinstance(part, ast.Div) for part in parts):
                    divided.add(name)
    return added - divided


def _calls(node: ast.AST) -> set[str]:
    """Return the last names of what is called: `fit` of `model.fit(…)`."""
    return last_names_called(ast.walk(node))


def _read(node: ast.AST) -> set[str]:
    """Return the names that code reads, and the last names of what it calls."""
    return _calls(node) | names_in(node, ast.Load)


def _stored(node: ast.AST) -> set[str]:
    """Return the names that a statement assigns, or whose items it sets or appends.

    Empty for the definition of a function or a class, which has names of its own.
    """
    if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef | ast.ClassDef):
        return set()
    names = names_in(node, ast.Store)
    for part in ast.walk(node):
        if isinstance(part, ast.Subscript) and isinstance(part.ctx, ast.Store):
            names |= names_in(part.value)
        match part:
            case ast.Call(func=ast.Attribute(attr="append" | "extend", value=ast.Name(id=name))):
                names.add(name)
    return names


def _sources(code: Code, at: int, name: str) -> list[str]:
    """Return the words of the functions that compute a variable, and of their `scoring` option.

    `error` for a score with a changed sign, as `1 - accuracy`. If the variable is one of several
    that a call returns, only words for the data count.
    """
    for node in ast.walk(code.statements[at][1]):
        match node:
            case ast.Assign(targets=[ast.Name(id=target)], value=value) if target == name:
                words = _call_words(value, code)
                metric = metric_of(words)
                is_gain = metric is not None and metric.direction == "maximize"
                is_less = _COMPLEMENT.match(ast.unparse(value))
                return ["error"] if is_gain and is_less else words
            case ast.Assign(targets=[target], value=value) if name in names_in(target):
                return [word for word in _call_words(value) if word in SPLITS]
    return []


def _call_words(node: ast.expr, code: Code | None = None) -> list[str]:
    """Return the words of the functions that an expression calls, and of their `scoring` option.

    Arguments are searched for calls, too, but not those of a function that the notebook defines,
    because they say nothing about its result. The expressions that it returns are searched instead.
    """
    words: list[str] = []
    own = {} if code is None else code.functions
    waiting: list[ast.AST] = [node]
    while waiting:
        part = waiting.pop(0)
        if not isinstance(part, ast.Call):
            waiting += ast.iter_child_nodes(part)
            continue
        name = last_name(part.func)
        words += words_of(name)
        if name in own:
            for result in results_of(own[name]):
                words += _call_words(result)
            continue
        waiting += ast.iter_child_nodes(part)
        for option in part.keywords:
            if option.arg == "scoring" and isinstance(option.value, ast.Constant):
                words += words_of(str(option.value.value))
    return words


def _singular(words: Sequence[str]) -> list[str]:
    return [*words, *(word.removesuffix("s") for word in words)]


def _named(label: str) -> tuple[str, list[str]]:
    """Return a name for a printed number, and the words of its label.

    The label is the text before the number, with `#` for each number in it. If the text after the
    last `#` has a metric, only its words count, and those for the data. Words of counts are removed
    first: `loss after epoch #` becomes `loss after #`.
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
