"""Files next to the notebook that each trial writes under the same name."""

from __future__ import annotations

import pytest

from sweeper.execution.notebook_files import named_in


@pytest.mark.parametrize(
    "code",
    ["torch.save(net, 'best.pt')", 'net.save("models/best.pt")', r"write(f'{root}\best.pt')"],
)
def test_a_file_is_named_by_a_text_that_ends_with_its_name(code: str) -> None:
    found = named_in(code, ["best.pt", "models/best.pt", "b.pt", "best,pt"])
    assert found == ("best.pt", "models/best.pt")


@pytest.mark.parametrize("code", ["f'{number}best.pt'", "best.pt", "'best.pt.part'", ""])
def test_a_name_that_is_only_a_part_of_a_text_names_no_file(code: str) -> None:
    assert named_in(code, ["best.pt"]) == ()
