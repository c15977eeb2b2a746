"""Who leads a study on PostgreSQL, and what a coordinator does then; without kernels."""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterator
from contextlib import closing, suppress
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
from postgres_servers import PostgresServer, started_postgres
from studies import until

from sweeper.errors import HeldStudyError, SettingsError, StudyError
from sweeper.execution.cluster.members.own_scheduler import OwnScheduler
from sweeper.notebooks import ResearchNotebook
from sweeper.notebooks.fingerprint import fingerprint_of
from sweeper.settings import Settings
from sweeper.study import SamplerFactory, Study
from sweeper.study.coordinators.leadership import Leadership
from sweeper.study.coordinators.session_lock import holder_in
from sweeper.sweep.sharing import coordinator as coordinator_module
from sweeper.sweep.sharing.coordinator import Coordinator
from sweeper.testing import write_notebook

pytestmark = pytest.mark.slow

TLS = {"ca": "a", "certificate": "b", "key": "c"}
STATED: dict[str, Any] = {
    "objective": {"val": "maximize"},
    "space": {"x": {"low": 0.0, "high": 1.0}},
    "study": {"name": "joint", "sampler": "random", "trials": 4},
}
SETTINGS = Settings.from_mapping(STATED)


@pytest.fixture(scope="module")
def server() -> Iterator[PostgresServer]:
    with started_postgres() as server:
        yield server


@pytest.fixture
def url(server: PostgresServer, request: pytest.FixtureRequest) -> str:
    """Of a database of the test's own."""
    return server.make_database(f"db{abs(hash(request.node.nodeid))}")


@pytest.fixture
def leadership(url: str) -> Iterator[Leadership]:
    with closing(Leadership(url, "joint")) as leadership:
        yield leadership


@pytest.fixture
def make(url: str, tmp_path: Path) -> Callable[..., Coordinator]:
    """Makes a coordinator; its news go into the list `news` of the call."""
    notebook = ResearchNotebook(write_notebook(tmp_path / "nb.ipynb", "val = x"))

    def make(news: list[str] | None = None, **stated: Any) -> Coordinator:
        call = {
            "settings": SETTINGS,
            "notebook": notebook,
            "storage": url,
            "tracking_uri": "http://127.0.0.1:1",
            "jobs": None,
            "host": "",
            "timeout_s": None,
            "kernel": None,
            "allow_changes": False,
            "on_news": (news if news is not None else []).append,
        }
        return Coordinator.of(**{**call, **stated})

    return make


def test_a_study_that_nobody_sweeps_has_no_holder_and_no_leader(leadership: Leadership) -> None:
    assert leadership.holder() is None
    assert leadership.leader() is None


@pytest.mark.parametrize("is_shared", [False, True])
def test_the_holder_is_the_sweep_of_the_study_and_says_whether_others_may_join(
    is_shared: bool, url: str, leadership: Leadership
) -> None:
    study = Study.open(url, SETTINGS, is_shared=is_shared)
    holder = leadership.holder()
    assert holder is not None
    assert holder.is_shared is is_shared
    assert holder.process.startswith("process ")
    study.close()
    until(lambda: leadership.holder() is None)


def test_a_leader_is_known_by_the_session_that_holds_the_study(
    url: str, leadership: Leadership
) -> None:
    study = Study.open(url, SETTINGS, is_shared=True)
    leadership.announce(address="tls://10.0.0.3:4000", security=TLS)
    with closing(Leadership(url, "joint")) as another:
        leader, holder = another.leader(), another.holder()
        assert leader is not None
        assert holder is not None
        assert leader.token == holder.token
        assert leader.address == "tls://10.0.0.3:4000"
        assert leader.security == TLS
        assert "'c'" not in repr(leader)
        leadership.announce_end("the study has all its trials")
        ended = another.leader()
    assert ended is not None
    assert ended.ended == "the study has all its trials"
    assert not ended.security
    study.close()


def test_a_leader_that_has_lost_the_study_does_not_end_the_sweep_of_the_next_one(
    url: str, leadership: Leadership
) -> None:
    first = Study.open(url, SETTINGS, is_shared=True)
    leadership.announce(address="tls://10.0.0.3:4000", security=TLS)
    first.close()
    until(lambda: leadership.holder() is None)
    leadership.announce_end("it was stopped there")
    second = Study.open(url, SETTINGS, is_shared=True)
    with closing(Leadership(url, "joint")) as another:
        another.announce(address="tls://10.0.0.4:4000", security=TLS)
        leadership.announce_end("it was stopped there")
        leader = another.leader()
    assert leader is not None
    assert (leader.address, leader.ended) == ("tls://10.0.0.4:4000", "")
    second.close()


def test_nobody_can_lead_a_study_without_its_lock(url: str, leadership: Leadership) -> None:
    Study.open(url, SETTINGS).close()
    with pytest.raises(StudyError, match="nobody holds the study 'joint'"):
        leadership.announce(address="tls://10.0.0.3:4000", security=TLS)


def test_of_two_that_want_to_lead_one_is_refused_as_held(url: str) -> None:
    study = Study.open(url, SETTINGS, is_shared=True)
    with pytest.raises(HeldStudyError, match=r"is being swept by process \d+ on"):
        Study.open(url, SETTINGS, is_shared=True)
    study.close()


def test_who_finds_nobody_may_lead(make: Callable[..., Coordinator]) -> None:
    with closing(make()) as coordinator:
        assert coordinator.follow() is None


def test_a_sweep_without_shared_is_not_joined(url: str, make: Callable[..., Coordinator]) -> None:
    study = Study.open(url, SETTINGS)
    with closing(make()) as coordinator, pytest.raises(HeldStudyError, match="without --shared"):
        coordinator.follow()
    study.close()


def test_a_leader_that_has_not_announced_itself_is_waited_for_until_it_is_gone(
    url: str, make: Callable[..., Coordinator]
) -> None:
    study = Study.open(url, SETTINGS, is_shared=True)
    found: list[Any] = []
    with closing(make()) as coordinator:
        following = threading.Thread(target=lambda: found.append(coordinator.follow()))
        following.start()
        following.join(2.0)
        assert following.is_alive()
        study.close()
        following.join(30.0)
    assert found == [None]


def test_a_coordinator_that_is_stopped_says_by_whom(
    url: str, make: Callable[..., Coordinator]
) -> None:
    study = Study.open(url, SETTINGS, is_shared=True)
    with closing(make()) as coordinator:
        stopping = threading.Timer(1.0, coordinator.stop, ["Ctrl-C"])
        stopping.start()
        ended = coordinator.follow()
    assert ended is not None
    assert (ended.leader, ended.why, ended.is_stopped) == ("", "Ctrl-C", True)
    study.close()


def test_a_coordinator_ends_at_its_time_limit(url: str, make: Callable[..., Coordinator]) -> None:
    study = Study.open(url, SETTINGS, is_shared=True)
    with closing(make(timeout_s=0.5)) as coordinator:
        ended = coordinator.follow()
    assert ended is not None
    assert ended.why == "--timeout"
    study.close()


def test_a_leader_that_cannot_be_reached_is_named_with_the_remedy(
    url: str, leadership: Leadership, make: Callable[..., Coordinator]
) -> None:
    study = Study.open(url, SETTINGS, is_shared=True)
    leadership.announce(address="tls://127.0.0.1:1", security=TLS)
    news: list[str] = []
    with closing(make(news)) as coordinator:
        following = threading.Thread(target=coordinator.follow)
        following.start()
        try:
            line, *_ = until(lambda: [it for it in news if "cannot be reached" in it])
        finally:
            coordinator.stop("the test")
            following.join()
    assert "cannot be reached at tls://127.0.0.1:1" in line
    assert "--shared ADDRESS" in line
    study.close()


def test_a_study_of_another_notebook_is_refused_before_a_trial_runs_here(
    url: str, leadership: Leadership, make: Callable[..., Coordinator], tmp_path: Path
) -> None:
    other = ResearchNotebook(write_notebook(tmp_path / "other.ipynb", "val = 2 * x"))
    study = Study.open(url, SETTINGS, is_shared=True)
    study.ask(SETTINGS, SamplerFactory(SETTINGS), lambda number: tmp_path / f"{number:04}.ipynb")
    study.note_facts(made_of=fingerprint_of(other, SETTINGS, kernel_name=other.kernel_name))
    leadership.announce(address="tls://127.0.0.1:1", security=TLS)
    with closing(make()) as coordinator, pytest.raises(StudyError, match="made of something else"):
        coordinator.follow()
    study.close()


def test_a_machine_goes_on_with_its_trials_while_the_server_is_restarted(
    server: PostgresServer,
    url: str,
    leadership: Leadership,
    make: Callable[..., Coordinator],
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(coordinator_module, "_LOOK_WHILE_SERVING_S", 0.2)
    study = Study.open(url, SETTINGS, is_shared=True)
    with closing(OwnScheduler.open("127.0.0.1")) as scheduler, closing(make()) as coordinator:
        leadership.announce(address=scheduler.address, security=scheduler.security)
        following = threading.Thread(target=coordinator.follow)
        following.start()
        try:
            (before,) = until(scheduler.cluster.workers)
            server.stop(clean=False)
            server.start()
            # The sweep that leads has written nothing since, so nobody holds the study.
            until(lambda: holder_in(url, "joint") is None)
            following.join(3.0)
            assert list(scheduler.cluster.workers()) == [before]
        finally:
            coordinator.stop("the test")
            following.join()
    with suppress(StudyError):
        study.close()


def test_who_is_stopped_while_it_leads_stops_its_sweep(make: Callable[..., Coordinator]) -> None:
    calls: list[tuple[str, bool]] = []
    sweep: Any = SimpleNamespace(stop=lambda by, now=False: calls.append((by, now)))
    with closing(make()) as coordinator:
        with coordinator.leading(sweep) as may_run:
            assert may_run
            coordinator.stop("Ctrl-C")
            coordinator.stop("Ctrl-C", now=True)
        assert calls == [("Ctrl-C", False), ("Ctrl-C", True)]
        with coordinator.leading(sweep) as may_run:  # built while Ctrl-C came
            assert not may_run
        ended = coordinator.follow()
    assert ended is not None
    assert ended.is_stopped


def test_a_storage_that_is_away_is_waited_for(
    server: PostgresServer, url: str, make: Callable[..., Coordinator]
) -> None:
    news: list[str] = []
    found: list[Any] = []
    with closing(make(news)) as coordinator:
        server.stop(clean=False)
        following = threading.Thread(target=lambda: found.append(coordinator.follow()))
        following.start()
        try:
            until(lambda: any("it is tried again" in line for line in news))
        finally:
            server.start()
        following.join(60.0)
    assert found == [None]


@pytest.mark.parametrize(
    ("stated", "remedy"),
    [
        ({"storage": None}, "--shared needs --storage postgresql://"),
        ({"storage": "sqlite:///some.db"}, "--shared needs a storage on PostgreSQL"),
        ({"tracking_uri": None}, "--shared needs --tracking-uri"),
        ({"jobs": "many"}, "-j many: expected a whole number"),
        (
            {"settings": Settings.from_mapping({**STATED, "cluster": "local:2"})},
            "leave --cluster and the section cluster out",
        ),
        (
            {
                "settings": Settings.from_mapping(
                    {**STATED, "study": {**STATED["study"], "order": "fixed"}}
                )
            },
            "--shared and study.order: fixed exclude each other",
        ),
    ],
    ids=lambda it: "" if isinstance(it, str) else next(iter(it)),
)
def test_what_cannot_be_shared_is_refused_with_the_remedy(
    stated: dict[str, Any],
    remedy: str,
    make: Callable[..., Coordinator],
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.chdir(tmp_path)
    with pytest.raises(SettingsError, match=remedy):
        make(**stated)
    assert not [path.name for path in tmp_path.iterdir() if path.suffix == ".db"]
