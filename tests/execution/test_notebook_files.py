"""Files next to the notebook that each trial writes under the same name."""

from __future__ import annotations

import pytest

from sweeper.execution.notebook_files import named_in


@pytest.mark.parametrize(
    "code",
    ["torch.save(net, 'best.pt')", 'net.save("models/best.pt")', r"write(f'{root}\best.pt')"],
)
def test_a_string_in_the_code_that_ends_with_a_files_name_counts_as_naming_the_file(
    code: str,
) -> None:
    found = named_in(code, ["best.pt", "models/best.pt", "b.pt", "best,pt"])
    assert found == ("best.pt", "models/best.pt")


@pytest.mark.parametrize("code", ["f'{number}best.pt'", "best.pt", "'best.pt.part'", ""])
def test_a_string_in_the_code_that_only_contains_a_files_name_does_not_count_as_naming_it(
    code: str,
) -> None:
    assert named_in(code, ["best.pt"]) == ()
