"""Convert LaTeX to MathML, which browsers typeset without a script or a special font."""

from __future__ import annotations

import re
from functools import lru_cache

TAGS = set(
    "math menclose merror mfrac mi mmultiscripts mn mo mover mpadded mphantom mroot mrow ms mspace "
    "msqrt mstyle msub msubsup msup mtable mtd mtext mtr munder munderover".split()
)
ATTRIBUTES = set(
    "accent columnalign display displaystyle fence form height linethickness lspace mathvariant "
    "maxsize minsize movablelimits rspace scriptlevel stretchy width".split()
)
#: Style sheet with the effect of those MathML attributes that Chromium ignores.
STYLE = """
math[display=block] { overflow: auto hidden; padding: 0.2em 0; }
mtd[columnalign=left] { text-align: left; }
mtd[columnalign=right] { text-align: right; }
math [mathvariant^=bold] { font-weight: bold; }
"""
#: Replacements for LaTeX commands that latex2mathml does not know, or whose lines it would number.
_KNOWN = (
    (re.compile(r"(\\(?:begin|end)){(?:align|aligned|flalign)\*?}"), r"\1{split}"),
    (re.compile(r"(\\(?:begin|end)){(?:gather|gathered|multline)\*?}"), r"\1{matrix}"),
    (re.compile(r"\\[lr]Vert\b"), r"\\|"),
    (re.compile(r"\\arg(?![a-z])"), r"\\operatorname{arg}"),
)
#: Matches the MathML of a function's name, such as `log`. latex2mathml typesets these names as
#: variables, or with too much space.
_FUNCTION = re.compile(r"<m([io])>([A-Za-z]{2,})</m\1>")
#: Matches text between two dollar signs that is not a formula: amounts of money or shell variables.
_PROSE = re.compile(r"\S.*\s|\d.*[(/,+–-]", re.DOTALL)


@lru_cache(maxsize=1000)  # All trials have the same Markdown cells.
def rendered(latex: str, *, is_block: bool = False) -> str | None:
    """Return a LaTeX formula as MathML. None if the text is no formula or cannot be converted."""
    from latex2mathml.converter import convert

    if not is_block and _PROSE.fullmatch(latex):
        return None
    for pattern, known in _KNOWN:
        latex = pattern.sub(known, latex)
    try:
        mathml = str(convert(latex, display="block" if is_block else "inline"))
        return _FUNCTION.sub(r'<mo lspace="0.1em" rspace="0.1em">\2</mo>', mathml)
    except Exception:  # noqa: BLE001  The page then shows the LaTeX as text.
        return None
