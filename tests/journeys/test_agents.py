"""Test the command `mcp` with the protocol's own client: it sweeps, confirms and compares."""

from __future__ import annotations

import asyncio
import json
import sys
from collections.abc import Awaitable, Callable
from contextlib import closing
from pathlib import Path
from typing import Any

import psutil
import pytest
from forked import ROOT
from studies import until

from sweeper.agents.server import Agent, server_of
from sweeper.cli import main
from sweeper.testing import write_notebook

pytestmark = [pytest.mark.kernel, pytest.mark.slow, pytest.mark.usefixtures("here")]

Call = Callable[..., Awaitable[Any]]


def with_agent(server: Any, work: Callable[[Call], Awaitable[None]]) -> None:
    """Connect an agent to a server. Call `work` with a function that calls a tool."""
    from mcp.client import Client  # half a second of CPU time, for every process of the tests

    async def connect() -> None:
        async with Client(server) as client:

            async def call(tool: str, **arguments: Any) -> Any:
                """Call an MCP tool. Return its parsed JSON answer, or the text of its error."""
                result = await client.call_tool(tool, arguments)
                (content,) = result.content
                assert content.type == "text"
                return content.text if result.is_error else json.loads(content.text)

            await work(call)

    asyncio.run(connect())


@pytest.fixture
def parameters(here: Path) -> Path:
    file = here / "p.yml"
    space = "space: {x: {low: 0.0, high: 1.0}}"
    file.write_text(f"objective: {{val: maximize}}\n{space}\nstudy: {{sampler: random}}")
    return file


def notebook(name: str, *cells: str) -> None:
    write_notebook(Path(name), *cells, parameters="x = 0.5\nseed = 0")


def test_an_agent_can_sweep_confirm_and_compare_two_notebooks_within_its_budget(
    parameters: Path,
) -> None:
    score = "import random\nval = x + random.Random(seed).gauss(0, 0.01)"
    notebook("base.ipynb", score)
    notebook("idea.ipynb", f"{score} + 10")
    notebook("../outside.ipynb", score)
    Path("link.ipynb").symlink_to("../outside.ipynb")

    async def work(call: Call) -> None:
        for outside in ("../outside.ipynb", "link.ipynb"):
            assert "only notebooks in" in await call("sweep", notebook=outside, study="bad")
        absent = await call("sweep", notebook="no.ipynb", study="bad", trials=1)
        assert "there is no such notebook" in absent
        great = await call("sweep", notebook="idea.ipynb", study="idea", trials=100)
        assert "needs 100 trials, but 8 of the budget of 8 are left" in great

        for study, trials in (("base", 1), ("idea", 2)):
            await call("sweep", notebook=f"{study}.ipynb", study=study, trials=trials)
            await call("status", wait_s=60)
        changed = await call("sweep", notebook="base.ipynb", study="idea", trials=2)
        assert "with other code or settings" in changed
        await call("enqueue", study="idea", params={"x": 0.0})
        assert (await call("compare", new="idea", old="base"))["counts"] is False
        for study in ("base", "idea"):
            assert (await call("confirm", study=study, seeds=2))["started"] is True
            (status,) = (await call("status", study=study, wait_s=60))["studies"]
        assert (status["counts"]["completed"], status["confirmation"]["missing"]) == (3, 0)
        won = await call("compare", new="idea", old="base")
        assert won["counts"] is True
        assert won["gain"] == pytest.approx(10, abs=1)
        assert (await call("compare", new="base", old="idea"))["counts"] is False
        assert "needs 5 trials, but 0 of" in await call("confirm", study="idea")

    with closing(Agent(parameters, budget=8, jobs="2")) as agent:
        with_agent(server_of(agent), work)


def test_no_process_outlives_an_mcp_server_that_is_killed(parameters: Path) -> None:
    notebook("slow.ipynb", "import time\nprint('hello')\ntime.sleep(600)\nval = x")

    async def work(call: Call) -> None:
        await call("sweep", notebook="slow.ipynb", study="slow", trials=1)
        owner = json.loads(Path("out/agent/slow/sweep.json").read_text())
        executed = Path("out/agent/slow.0000.ipynb")
        until(lambda: executed.exists() and '"status": "running"' in executed.read_text())
        server = psutil.Process(owner["pid"])
        started = server.children(recursive=True)
        assert started
        server.kill()
        until(lambda: not any(it.is_running() for it in started))

    words = [str(ROOT / "notebook_hpo.py"), "mcp", "-p", str(parameters), "--budget", "100"]
    from mcp.client.stdio import StdioServerParameters

    with_agent(StdioServerParameters(command=sys.executable, args=words), work)


def test_without_the_library_mcp_one_line_says_what_to_install(
    parameters: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setitem(sys.modules, "mcp.server.mcpserver", None)
    assert main(["mcp", "-p", str(parameters), "--budget", "5"]) == 2
    assert "pip install 'notebook-hpo[mcp]'" in capsys.readouterr().err
