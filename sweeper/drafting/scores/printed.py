"""List the numbers that a run has printed, each with its label and a pattern that finds it again.

The label is the text before the number. A sweep reads the score of each trial with the pattern.
"""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, field
from itertools import product

from ...notebook_api.messages import Point
from ...notebooks.printed_numbers import read_number, without_codes
from ...notebooks.scores import PrintedScores
from ...settings.patterns import compile_pattern, find_all
from ...settings.sections import ScoreSource
from .evaluations import COMPUTED, Printing
from .metrics import metric_of, words_of

#: Group for the number in a drafted pattern. It may match only the beginning of a number, because a
#: sweep then reads the whole number. A sweep also reads NaN and infinity in any spelling there.
_NUMBER = r"([-+]?\.?\d[\d.eE+-]*)"
#: Matches a number. An exponent, as in `R^2`, is none, but part of a name.
_ANY_NUMBER = compile_pattern(
    r"(?i)(?<![\w.,^])([-+]?(?:\.?\d[\d.e+-]*|nan|inf(?:inity)?))(?!(?!(?:st|nd|rd|th)\b)[^\W\d_])"
)
_OTHER_NUMBER = r"[-+]?[\d.,]+(?:e[-+]?\d+)?"
#: Patterns of the text between a label and its number, in the order in which they are tried. The
#: first one allows no letters. The second one also allows the type of a scalar, as in
#: `np.float64(`. The third one needs at least one character: then `RMSE` does not match `RMSE0:`.
_GAPS = (r"\W*?", r"\W*?(?:[A-Za-z_.]{0,20}\()?", r"\W+?")
#: Matches the text between two numbers in a line if the first number belongs to the second one's
#: label: `epoch 3 loss: 0.5` has the label `epoch # loss`. Such a text begins with a letter, after
#: at most `%`, `)` and a space. Or it is punctuation with `:`, `=` or `>` at the end.
_CONTINUES = re.compile(r"%?\)? ?[A-Za-z]|\W*[:=>]\s*$")
_WRAPPER = re.compile(r"(?:[A-Za-z]\w*\.)*[A-Za-z]\w*\($")
#: Lines that match have no scores and are skipped: warnings, errors, lines of source files, times,
#: and the progress bars of Keras. The numbers in these bars are found in what Keras logs.
_NO_RESULT = re.compile(r"Warning|ERROR|\.(?:py|c|cc|cpp|cu|h):\d|CPU times|/step\b|per loop\b")
#: Matches the text after a number that is a count of rounds, seconds or the like: `10 rounds`.
_COUNTED = re.compile(r"\s*(?:round|epoch|step|iteration|second|minute|sample|row|batche?)s?\b")
_LETTERS = re.compile(r"[^\W\d_]")
#: `_GAP` separates the cells of a table. `_WIDE_GAP` separates its heads if they have several
#: words. `_CELL` is a cell of digits, or `nan` or `inf`.
_GAP, _WIDE_GAP = r"[\s|]+", r"\s{2,}|\s*[|\t]\s*"
_CELL = r"[\d.:e+naif-]+"
_ROW = re.compile(rf"[\s|]*{_CELL}(?:{_GAP}{_CELL})+[\s|]*$")
_LINE_END = re.compile(r"[\r\n]")
_LONGEST_LABEL = 80
#: Labels beyond this number are ignored, because so many labels are those of a table or of data,
#: not of scores (chosen, not measured).
_MOST_LABELS = 60


@dataclass(frozen=True, slots=True, kw_only=True)
class Text:
    """What one cell has printed to one stream.

    Attributes:
        cell: Number of the code cell.
        stream: `stdout` or `stderr`.
        text: The printed text.
        is_redrawn: Whether lines were overwritten in place, as by a progress bar. The text has only
            their last state.
    """

    cell: int
    stream: str
    text: str
    is_redrawn: bool = False


@dataclass(slots=True, kw_only=True)
class PrintedNumber:
    """The numbers that were printed after one label, such as the loss of each epoch.

    Attributes:
        label: The text before each number, with `#` for each other number in it.
        cell: The code cell that has printed the label last.
        pattern: Regular expression that finds these numbers and no others.
        values: The numbers, in the order in which they were printed.
        printing: The value in the code that was printed after the label. None if unknown.
    """

    label: str
    cell: int
    pattern: str = ""
    values: list[float] = field(default_factory=list)
    printing: Printing | None = None


def printed_numbers(
    texts: Sequence[Text], printings: Sequence[tuple[int, Printing]] = ()
) -> list[PrintedNumber]:
    """List the printed numbers that have a label and that a pattern finds again.

    Args:
        texts: What the cells have printed.
        printings: Expressions that the code prints, each with the number of its cell. Digits in a
            literal text of the code, such as `top-5`, are not a printed number. If possible, a
            pattern has only literal texts, because computed texts may differ in each trial.
    """
    found: dict[str, PrintedNumber] = {}
    for text in texts:
        for numbers in _labelled(text):
            stated = list[tuple[int, int]]()
            for label, _, before, is_alone in numbers:
                if label not in found and len(found) < _MOST_LABELS:
                    printing = _printing_of(label, before, text.cell, printings, is_alone=is_alone)
                    found[label] = PrintedNumber(label=label, cell=text.cell, printing=printing)
                if label in found and (shown := found[label].printing) is not None:
                    stated += _stated_in(before, shown.before) or ()
            for label, value, before, _ in numbers:
                if label in found and not any(a <= len(before) < b for a, b in stated):
                    found[label].cell = text.cell
                    found[label].values.append(value)
    printed = [number for number in found.values() if number.values]
    # A print in a loop over models has a label for each model. These are different numbers, so the
    # patterns keep the labels in full.
    several = Counter(id(number.printing) for number in printed if number.printing)
    alone = []
    for number in printed:
        labels = [number.label]
        if number.printing is not None and several[id(number.printing)] == 1:
            said = trimmed(_last_line(number.printing.before))
            labels[:0] = [said] if _LETTERS.search(said) else []
        if any(_is_found_again(number, label, texts) for label in labels):
            alone.append(number)
    return [*alone, *_columns(texts)]


def _printing_of(
    label: str,
    before: str,
    cell: int,
    printings: Sequence[tuple[int, Printing]],
    *,
    is_alone: bool,
) -> Printing | None:
    """Find the expression in the code that was printed as a number. None if it is not known.

    The literal text before the expression in its print call must match the text before the number.
    If several expressions match, one in the number's cell has priority, then the one with the
    longest text. If none matches and the label has no metric, it is the expression of the cell's
    only print call that computes its label, such as `print(name, acc)`. In this case, the number
    must be alone in its line. The line must not have more words than such a call prints, because it
    may come from a library.

    Args:
        label: The number's label.
        before: The text in the line before the number.
        cell: Number of the code cell that has printed the number.
        printings: Expressions that the code prints, each with the number of its cell.
        is_alone: Whether the line has no other number.
    """
    known = [
        (at == cell, len(printing.before), printing)
        for at, printing in printings
        if _LETTERS.search(printing.before) and _stated_in(before, printing.before) is not None
    ]
    if known:
        return max(known, key=lambda it: it[:2])[2]
    only = [
        printing
        for at, printing in printings
        if at == cell and COMPUTED in printing.before and not _LETTERS.search(printing.before)
    ]
    n_words = sum(_LETTERS.search(word) is not None for word in before.split())
    if len(only) != 1 or not is_alone or n_words > only[0].before.count(COMPUTED):
        return None
    return only[0] if metric_of(words_of(label)) is None else None


def _stated_in(before: str, printed: str) -> list[tuple[int, int]] | None:
    """Return where the text that was printed before a number has the literal texts of a print call.

    Args:
        before: The text in the line before the number.
        printed: `Printing.before`, the text that the call prints before a value.

    Returns:
        Begin and end of each literal text. None if the call cannot have printed the line.
    """
    last, *others = (
        _without_end(text).strip() for text in reversed(_last_line(printed).split(COMPUTED))
    )
    line = _without_end(before)
    begin = len(line) - len(last)
    if not line.endswith(last):
        return None
    found, first = [(begin, len(line))], last
    for first in others:
        # Between two literal texts, the call has printed a value of at least one character.
        begin = before.rfind(first, 0, max(begin - 1, 0))
        if begin < 0:
            return None
        found.append((begin, begin + len(first)))
    return None if first and before[:begin].strip() else found


def _last_line(words: str) -> str:
    """Return the last line that is not empty in the text that a call prints before a number."""
    return words.rstrip().rpartition("\n")[2]


def bare_numbers(texts: Sequence[Text]) -> list[PrintedNumber]:
    """List the numbers that are printed alone on a line, without a label.

    There is one entry for each text with such numbers. Its values are those of this text and of all
    earlier texts. A number may be inside the type of a scalar, as in `np.float64(0.5)`.
    """
    pattern = rf"^(?:[\w.]+\()?{_NUMBER}(?:\)|,.*)?$"
    numbers = []
    for index, text in enumerate(texts):
        if values_found(pattern, [text]):
            values = values_found(pattern, texts[: index + 1])
            numbers.append(PrintedNumber(label="", cell=text.cell, pattern=pattern, values=values))
    return numbers


def values_found(pattern: str, texts: Iterable[Text]) -> list[float]:
    """List the numbers that a trial would read with a pattern if it printed the same texts."""
    points: list[Point] = []
    reader = PrintedScores({"score": ScoreSource(pattern=pattern)}, points.append)
    for text in texts:
        reader.read(text.stream, text.text)
        reader.end_cell()
    return [point.metrics.get("score", float("nan")) for point in points]


def _columns(texts: Sequence[Text]) -> Iterator[PrintedNumber]:
    """Yield the numbers of those columns of printed tables that have a metric in their head."""
    heads: dict[tuple[str, ...], int] = {}
    for text in texts:
        above: list[list[str]] = []
        for line in _LINE_END.split(without_codes(text.text)):
            if _ROW.match(line):
                width = len(re.split(_GAP, line.strip(" |")))
                heads |= {tuple(head): text.cell for head in above if len(head) == width}
            elif _LETTERS.search(line):
                above = [re.split(by, line.strip(" |")) for by in (_WIDE_GAP, _GAP)]
    for head, cell in heads.items():
        for position, name in enumerate(head):
            before = rf"(?:{_CELL}{_GAP}){{{position}}}" if position else ""
            behind = rf"(?:{_GAP}{_CELL}){{{len(head) - position - 1}}}"
            pattern = rf"^[\s|]*{before}{_NUMBER}{behind}[\s|]*$"
            if metric_of(words_of(name)) and (values := values_found(pattern, texts)):
                yield PrintedNumber(label=name, cell=cell, pattern=pattern, values=values)


def _labelled(text: Text) -> Iterator[list[tuple[str, float, str, bool]]]:
    """Yield a list for each line of a text, with the numbers that have a label.

    An item of a list has the label and the value of a number, the text before it, and whether the
    line has no other number. A number that is alone on its line, without a text before it, is
    labelled by the line above. Very long lines, and lines such as warnings, are skipped.
    """
    above = ""
    for line in _LINE_END.split(without_codes(text.text)):
        if len(line) > 2000 or _NO_RESULT.search(line):
            continue
        end, label, has_numbers = 0, "", False
        found = list[tuple[str, float, str, bool]]()
        numbers = [*find_all(_ANY_NUMBER, line)]
        for match in numbers:
            reading = read_number(match, line)
            if reading is None or match.start(1) < end:
                continue
            words, before = line[end : match.start(1)], line[: match.start(1)]
            is_alone = not has_numbers and len(numbers) == 1
            if is_alone and not _LETTERS.search(words) and _LETTERS.search(above):
                words, before = f"{trimmed(above)}\n", above
            continues = bool(label) and _CONTINUES.match(words) is not None
            label = trimmed(f"{label} #{words}" if continues else words)
            end, has_numbers = reading.end, True
            is_count = _COUNTED.match(line, end) and metric_of(words_of(label))
            if reading.value is not None and _LETTERS.search(label) and not is_count:
                found.append((label, reading.value, before, is_alone))
        yield found
        if line.strip():
            above = "" if has_numbers else line.strip()


def trimmed(words: str) -> str:
    """Return the last 80 characters of a label, without punctuation at both ends."""
    kept = _without_end(words)[-_LONGEST_LABEL:]
    return kept.lstrip(f" \t:=|>()[]{{}}'\",;-*%.#/\\{COMPUTED}")


def _without_end(words: str) -> str:
    return _WRAPPER.sub("", words).rstrip(" \t:=|>(['\"-~≈$")


def _is_found_again(number: PrintedNumber, label: str, texts: Sequence[Text]) -> bool:
    """Set `number.pattern` to the first pattern that finds exactly the number's values.

    Return whether there is such a pattern.

    Args:
        label: Text for the pattern, with `#` for other numbers and `COMPUTED` for other texts.
    """
    words, newline, _ = label.partition("\n")
    behind = r"\W*\n\s*" if newline else ""
    last, forms = trimmed(re.split(f"[#{COMPUTED}]", words)[-1]), list[str]()
    if _LETTERS.search(last):
        forms += [form + _as_pattern(last) for form in ("", r"(?<!\w)", r"(?:^|[^\w ])\W*")]
    forms += [form + _as_pattern(words) for form in ("", r"(?<!\w)")]
    for before, gap in product(forms, _GAPS):
        pattern = f"{before}{behind or gap}{_NUMBER}"
        found = values_found(pattern, texts)
        if list(map(repr, found)) == list(map(repr, number.values)):
            number.pattern = pattern
            return True
    return False


def _as_pattern(words: str) -> str:
    parts = (re.escape(part) for part in re.split(r"\s+", words.strip()))
    return r"\s+".join(parts).replace(r"\#", _OTHER_NUMBER).replace(COMPUTED, ".*?")
