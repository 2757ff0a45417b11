"""What `top` knows of processes that it looks at again and again."""

from __future__ import annotations

import os

import pytest

from hakmem.errors import HakmemError
from hakmem.inspect.errors import GoneError
from hakmem.top.sampler import ENDED_KEPT_S, HISTORY_LOOKS_MAX, counter_rates
from hakmem.watch import resident_bytes
from tests.top.support import MIB, REFILLS_PER_LOOK, Clock, MadeUpSession, made_up_sampler


def test_rates_are_growth_per_second() -> None:
    clock = Clock()
    sampler = made_up_sampler({10: MadeUpSession(10)}, clock=clock)
    (first,) = sampler.look()
    assert first.rates == {}
    clock.now_s = 0.25
    (second,) = sampler.look()
    assert second.rates["refills"] == REFILLS_PER_LOOK / 0.25
    assert second.rates["flushes"] == 0
    assert second.rss_bytes == (11 * MIB, 12 * MIB)


def test_rates_after_a_look_that_failed() -> None:
    """They are of the whole time since the last picture; while there is none, there are none."""
    clock = Clock()
    session = MadeUpSession(10)
    sampler = made_up_sampler({10: session}, clock=clock)
    sampler._alive = lambda pid: True
    for now_s in (0.0, 1.0):
        clock.now_s = now_s
        (view,) = sampler.look()
    assert view.rates["refills"] == REFILLS_PER_LOOK
    session.looks_max = 0
    for now_s in (2.0, 3.9):
        clock.now_s = now_s
        (view,) = sampler.look()
        assert view.problem is not None and view.snapshot is not None
        assert view.rates == {}
    session.looks_max = 9
    clock.now_s = 4.0
    (view,) = sampler.look()
    assert view.rates["refills"] == REFILLS_PER_LOOK / 3.0


def test_counter_that_shrank_or_is_new_has_no_rate() -> None:
    before, after = {"refills": 100, "flushes": 5}, {"refills": 7, "flushes": 9, "ticks": 3}
    assert counter_rates(before, after, 2.0) == {"flushes": 2.0}
    assert counter_rates(before, after, 0.0) == {}


def test_process_that_ends_keeps_its_last_picture() -> None:
    sessions = {10: MadeUpSession(10, looks_max=2), 11: MadeUpSession(11)}
    sampler = made_up_sampler(sessions)
    for _ in range(4):
        ended, live = sampler.look()
    assert ended.ended and ended.state == "ended" and ended.name == "server-10"
    assert ended.problem == "process 10 has ended"
    assert len(ended.rss_bytes) == 2
    assert sessions[10].closed
    assert not live.ended and len(live.rss_bytes) == 4


@pytest.mark.parametrize("error", [HakmemError("no"), ProcessLookupError(3, "No such process")])
def test_process_that_cannot_be_read_is_tried_again(error: Exception) -> None:
    session = MadeUpSession(10, looks_max=0, error=error)
    sampler = made_up_sampler({10: session})
    sampler._alive = lambda pid: True
    (view,) = sampler.look()
    assert (view.state, view.snapshot, view.problem) == ("unreadable", None, str(error))
    session.looks_max = 5
    (view,) = sampler.look()
    assert (view.state, view.problem) == ("live", None)


def test_process_that_runs_another_program_by_now_is_left() -> None:
    """It lives, but is not found any more: not so one that a look failed at."""
    clock = Clock()
    sessions = {10: MadeUpSession(10), 11: MadeUpSession(11)}
    sampler = made_up_sampler(sessions, given=False, clock=clock)
    sampler._alive = lambda pid: True
    assert [view.pid for view in sampler.look()] == [10, 11]
    sessions[10].looks_max = sessions[11].looks_max = 0
    clock.now_s = 100.0
    assert [view.problem is None for view in sampler.look()] == [False, False]
    del sessions[10]
    clock.now_s = 200.0
    assert [view.pid for view in sampler.look()] == [11]


def test_only_the_selected_process_is_looked_at_each_time() -> None:
    clock = Clock()
    sessions = {10: MadeUpSession(10), 11: MadeUpSession(11)}
    sampler = made_up_sampler(sessions, clock=clock)
    for look in range(21):
        clock.now_s = look / 10
        sampler.look(selected=11)
    assert (sessions[10].looks, sessions[11].looks) == (3, 21)


def test_new_processes_are_found() -> None:
    clock = Clock()
    sessions = {10: MadeUpSession(10)}
    sampler = made_up_sampler(sessions, given=False, clock=clock)
    assert [view.pid for view in sampler.look()] == [10]
    sessions[12] = MadeUpSession(12)
    clock.now_s = 0.5
    assert [view.pid for view in sampler.look()] == [10]
    clock.now_s = 1.5
    assert [view.pid for view in sampler.look()] == [10, 12]


def test_process_that_ends_before_its_first_look_is_shown_to_who_named_it() -> None:
    for given in (True, False):
        sessions = {10: MadeUpSession(10, looks_max=0), 11: MadeUpSession(11)}
        views = made_up_sampler(sessions, given=given).look()
        assert [view.pid for view in views] == ([10, 11] if given else [11])


def test_found_process_is_forgotten_a_while_after_its_end() -> None:
    clock = Clock()
    sessions = {10: MadeUpSession(10, looks_max=1), 11: MadeUpSession(11)}
    found, given = (made_up_sampler(sessions, given=given, clock=clock) for given in (False, True))
    for sampler in (found, given):
        sampler.look()
        sampler.look()
    sessions.pop(10)
    clock.now_s = ENDED_KEPT_S
    assert sorted(view.pid for view in found.look()) == [10, 11]
    clock.now_s = ENDED_KEPT_S + 2
    assert [view.pid for view in found.look()] == [11]
    assert [view.pid for view in given.look()] == [10, 11]


def test_a_number_that_is_used_again_is_another_process() -> None:
    clock = Clock()
    sessions = {10: MadeUpSession(10, looks_max=1), 11: MadeUpSession(11)}
    sampler = made_up_sampler(sessions, given=False, clock=clock)
    sampler.look()
    assert [view.state for view in sampler.look()] == ["ended", "live"]
    sessions[10] = MadeUpSession(10)
    clock.now_s = 2.0
    assert [view.state for view in sampler.look()] == ["live", "live"]


def test_only_the_selected_process_is_frozen() -> None:
    sessions = {10: MadeUpSession(10), 11: MadeUpSession(11)}
    sampler = made_up_sampler(sessions)
    views = sampler.look(selected=11, freeze=True)
    assert [session.freezes for session in sessions.values()] == [0, 1]
    assert [view.snapshot is not None and view.snapshot.frozen for view in views] == [False, True]


def test_history_is_bounded() -> None:
    clock = Clock()
    sampler = made_up_sampler({10: MadeUpSession(10)}, clock=clock)
    (view,) = sampler.look()
    watched = sampler._watched[10]
    watched.rss_bytes.extend(range(2 * HISTORY_LOOKS_MAX))
    (view,) = sampler.look()
    assert len(view.rss_bytes) == HISTORY_LOOKS_MAX


def test_resident_memory_is_the_kernels_figure() -> None:
    assert resident_bytes(os.getpid()) > MIB
    assert resident_bytes(0x7FFFFFFF) == 0


def test_close_closes_every_session() -> None:
    sessions = {10: MadeUpSession(10), 11: MadeUpSession(11)}
    sampler = made_up_sampler(sessions)
    sampler.look()
    sampler.close()
    assert all(session.closed for session in sessions.values())


@pytest.mark.parametrize("selected", [10, None])
def test_selection_does_not_change_what_is_listed(selected: int | None) -> None:
    sampler = made_up_sampler({10: MadeUpSession(10), 11: MadeUpSession(11)})
    assert [view.pid for view in sampler.look(selected)] == [10, 11]


def test_rates_are_never_of_two_programs() -> None:
    clock = Clock()
    session = MadeUpSession(10, error=GoneError("process 10 runs another program since (exec)"))
    sampler = made_up_sampler({10: session}, clock=clock)
    sampler._alive = lambda pid: True
    sampler.look()
    session.looks_max = 0
    clock.now_s = 1.0
    sampler.look()
    session.looks, session.looks_max = 7, 99
    clock.now_s = 2.0
    (view,) = sampler.look()
    assert view.problem is None and view.rates == {}
    clock.now_s = 3.0
    (view,) = sampler.look()
    assert view.rates["refills"] == REFILLS_PER_LOOK


def test_only_the_largest_are_looked_at() -> None:
    """A scrape of some hundred processes, of which 64 are served, must not look into all."""
    clock = Clock()
    sessions = {pid: MadeUpSession(pid) for pid in (10, 40, 30, 20)}
    sampler = made_up_sampler(sessions, given=False, most=2, clock=clock)
    assert sorted(view.pid for view in sampler.look()) == [30, 40]
    assert (sessions[10].looks, sessions[20].looks) == (0, 0)
    # Another one grows beyond them.
    sessions[60] = MadeUpSession(60)
    clock.now_s = 100.0
    assert sorted(view.pid for view in sampler.look()) == [40, 60]
    assert sessions[30].closed
    assert sessions[30].looks == 1
