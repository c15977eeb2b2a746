"""A thread talks to its kernels on an event loop, which is closed afterwards."""

from __future__ import annotations

import asyncio
import threading

from jupyter_core.utils import run_sync

from sweeper.kernels.process.event_loop import thread_event_loop


async def loop_of_call() -> asyncio.AbstractEventLoop:
    return asyncio.get_running_loop()


def test_the_event_loop_of_a_thread_is_closed_with_its_tasks_and_the_next_one_is_new() -> None:
    loops: list[asyncio.AbstractEventLoop] = []
    cancelled = threading.Event()

    async def wait() -> None:
        try:
            await asyncio.sleep(600)
        finally:
            cancelled.set()

    async def leave_a_task() -> asyncio.Task[None]:
        task = asyncio.ensure_future(wait())
        await asyncio.sleep(0)
        return task

    def work() -> None:
        for _ in range(2):
            with thread_event_loop():
                loops.append(run_sync(loop_of_call)())
                run_sync(leave_a_task)()

    thread = threading.Thread(target=work)
    thread.start()
    thread.join()
    first, second = loops
    assert first is not second
    assert first.is_closed()
    assert second.is_closed()
    assert cancelled.is_set()


def test_an_event_loop_that_is_already_running_is_not_closed() -> None:
    async def notebook() -> None:
        with thread_event_loop():
            pass
        assert not asyncio.get_running_loop().is_closed()

    asyncio.run(notebook())
