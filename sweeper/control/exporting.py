"""Write a study's trials as a table, for spreadsheets and other programs."""

from __future__ import annotations

from contextlib import suppress
from pathlib import Path

from ..errors import OutputError, first_line
from .loaded import LoadedStudy

#: The kinds of tables, by the endings of their files.
KINDS = ("csv", "parquet")


def write_table(study: LoadedStudy, file: Path, *, kind: str) -> int:
    """Write one row for each trial; see `LoadedStudy.dataframe`.

    Args:
        kind: `csv` or `parquet`.

    Returns:
        how many trials there are.

    Raises:
        OutputError: the file cannot be written; an earlier one is as it was.
        StudyError: no study was found, or more than one.
    """
    table = study.dataframe()
    beside = file.with_name(f".{file.name}.part")
    try:
        file.parent.mkdir(parents=True, exist_ok=True)
        if kind == "csv":
            table.to_csv(beside)
        else:
            # A param may have values of several types, which one column of Parquet cannot have.
            mixed = [name for name in table if len({type(v) for v in table[name].dropna()}) > 1]
            table.astype(dict.fromkeys(mixed, "string")).to_parquet(beside)
        beside.replace(file)
    except OSError as error:
        with suppress(OSError):
            beside.unlink(missing_ok=True)
        raise OutputError(f"--{kind} {file}: cannot be written: {first_line(error)}") from error
    return len(table)
