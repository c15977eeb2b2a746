"""LaTeX as MathML, which browsers typeset without a script or a font of ours."""

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
#: Chromium ignores these attributes.
STYLE = """
math[display=block] { overflow: auto hidden; padding: 0.2em 0; }
mtd[columnalign=left] { text-align: left; }
mtd[columnalign=right] { text-align: right; }
math [mathvariant^=bold] { font-weight: bold; }
"""
#: What stands for what the converter does not have, or numbers the lines of.
_KNOWN = (
    (re.compile(r"(\\(?:begin|end)){(?:align|aligned|flalign)\*?}"), r"\1{split}"),
    (re.compile(r"(\\(?:begin|end)){(?:gather|gathered|multline)\*?}"), r"\1{matrix}"),
    (re.compile(r"\\[lr]Vert\b"), r"\\|"),
    (re.compile(r"\\arg(?![a-z])"), r"\\operatorname{arg}"),
)
#: Names of functions, which the converter sets as variables or with the space around a sign.
_FUNCTION = re.compile(r"<m([io])>([A-Za-z]{2,})</m\1>")
#: A dollar that opens before a text and closes after a space is money or a variable of the shell.
_PROSE = re.compile(r"\S.*\s|\d.*[(/,+–-]", re.DOTALL)


@lru_cache(maxsize=1000)  # trials have the same text
def rendered(latex: str, *, is_block: bool = False) -> str | None:
    """A formula as MathML; None where it is none, or is not understood."""
    from latex2mathml.converter import convert

    if not is_block and _PROSE.fullmatch(latex):
        return None
    for pattern, known in _KNOWN:
        latex = pattern.sub(known, latex)
    try:
        mathml = str(convert(latex, display="block" if is_block else "inline"))
        return _FUNCTION.sub(r'<mo lspace="0.1em" rspace="0.1em">\2</mo>', mathml)
    except Exception:  # noqa: BLE001  whatever is wrong with it, it can be read as it was written
        return None
