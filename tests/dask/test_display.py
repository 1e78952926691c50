"""What a client shows of itself, and that nothing a peer says is more than text there."""

from __future__ import annotations

import asyncio
import sys
import warnings
from collections import Counter
from types import SimpleNamespace

import dask.array as da
import dask.dot
import distributed
import numpy as np
import pandas as pd
import pytest
from dask.widgets import get_template
from distributed import Future
from distributed.diagnostics import progressbar
from distributed.objects import HasWhat, SchedulerInfo, WhoHas
from distributed.utils import Log, Logs

from safeser.dask.client import Client
from safeser.dask.clients.dask_collections import Described
from safeser.dask.patches import display
from safeser.errors import PayloadError
from tests.dask.patched import original, patched
from tests.refusal import refusal


@pytest.fixture(autouse=True)
def _escaping():
    with patched(*(each.target for each in display.ROWS)):
        yield


EVIL = "<script>alert(1)</script>\"'><img src=x onerror=alert(2)>\x1b[2J"

MONITORED = {
    "executing": EVIL,
    "in_memory": EVIL,
    "ready": EVIL,
    "in_flight": EVIL,
    "cpu": EVIL,
    "memory": 1,
    "spilled_bytes": {"disk": 1},
    "host_net_io": {"read_bps": 1, "write_bps": 1},
}

WORKER = {
    "type": EVIL,
    "name": EVIL,
    "host": EVIL,
    "nthreads": EVIL,
    "memory_limit": 1,
    "nanny": EVIL,
    "local_directory": EVIL,
    "services": {"dashboard": EVIL},
    "metrics": MONITORED,
    "last_seen": 1,
    "gpu": {"name": EVIL, "memory-total": 1},
}

INFO = {
    "type": EVIL,
    "id": EVIL,
    "address": EVIL,
    "n_workers": 7,
    "workers": {EVIL: WORKER},
    "total_threads": EVIL,
    "total_memory": 1,
    "started": 1,
    "services": {"dashboard": EVIL},
}


def without(doors, info, policy="demo", principal="alice", **attributes):
    """Return a client that knows *info* of a scheduler, and never connected to one."""
    near, _ = doors.links(principal, "scheduler", policy)
    near.audit.refusals = {"context.family": 3, "operation.not-granted": 1}
    made = object.__new__(Client)
    side = SimpleNamespace(
        identity=SimpleNamespace(principal=principal), policy=near.policy, audit=near.audit
    )
    known = {
        "_scheduler_identity": info,
        "scheduler": SimpleNamespace(address="safeser://127.0.0.1:8786"),
        "scheduler_comm": SimpleNamespace(comm=SimpleNamespace(link=near)),
        "_loop_runner": SimpleNamespace(is_started=lambda: False),
        "cluster": None,
        "scheduler_file": None,
        "id": "Client-1",
        "status": "closed",
        **attributes,
    }
    kind = type("Client", (Client,), {"safeser": side, "__del__": lambda self: None})
    made.__class__ = kind
    vars(made).update(known)
    return made


HONEST = {
    **dict.fromkeys(("total_memory", "started"), 1),
    "type": "Scheduler",
    "id": "Scheduler-1",
    "address": "safeser://127.0.0.1:8786",
    "n_workers": 2,
    "total_threads": 4,
    "services": {"dashboard": 8787},
    "workers": {},
}


def test_it_says_when_the_scheduler_decides_by_another_policy(doors):
    client = without(doors, HONEST)
    assert "peer's policy" not in dict(client._said())
    client.scheduler_comm.comm.link.session = SimpleNamespace(
        peer_claims=SimpleNamespace(policy=EVIL, revision=7, sha256="ab" * 32)
    )
    said = dict(client._said())["peer's policy"]
    assert said.endswith(" revision 7 (SHA-256 abababababab)")
    assert "\x1b" not in repr(client)
    assert "<script>" not in client._repr_html_()


def test_a_scheduler_whose_word_cannot_be_read_has_no_dashboard(doors):
    client = without(doors, HONEST)

    def unreadable(*, n_workers):
        raise ValueError(EVIL)

    client._get_scheduler_info = unreadable
    assert client.dashboard_link is None


@pytest.mark.parametrize("identity", [INFO, {**INFO, "workers": {"w": {**WORKER, "name": "x"}}}])
def test_a_hostile_scheduler_and_its_workers_are_text(doors, identity):
    client = without(doors, identity)
    for drawn in (client._repr_html_(), SchedulerInfo(identity)._repr_html_()):
        assert "&lt;script&gt;" in drawn
        assert "<script" not in drawn
        assert "<img" not in drawn
        assert "'><" not in drawn
    assert repr(client).isprintable()
    assert repr(client).isascii()


@pytest.mark.parametrize(
    "change",
    [
        {"total_memory": EVIL},
        {"n_workers": 10**5000},
        {"total_threads": [EVIL]},
        {"started": 1e300},
        {"workers": {"w": {}}},
        {"workers": {"a": {**WORKER, "name": 1}, "b": {**WORKER, "name": "x"}}},
        {"services": EVIL},
        {"self": EVIL},
        {"address": 7},
        {"address": "x" * 10_000},
    ],
)
def test_a_scheduler_that_cannot_be_drawn_costs_that_part_alone(doors, change):
    client = without(doors, {**HONEST, **change})
    drawn = client._repr_html_()
    assert "<strong>principal:</strong>" in drawn
    assert "<script" not in drawn
    assert repr(client).isprintable()
    assert len(repr(client)) < 1_000
    client.dashboard_link  # noqa: B018 - nothing is raised


@pytest.mark.parametrize(
    "port", [EVIL, "8787@elsewhere.example", "8787", 0, -1, 1 << 16, True, None, 8787.0, [8787]]
)
def test_a_dashboard_is_at_a_port_of_the_schedulers_host(doors, port):
    client = without(doors, {**HONEST, "services": {"dashboard": port}})
    assert client.dashboard_link is None


@pytest.mark.parametrize(
    "drawn",
    [
        lambda: WhoHas({EVIL: [EVIL]})._repr_html_(),
        lambda: HasWhat({EVIL: [EVIL]})._repr_html_(),
        lambda: Logs({EVIL: Log(EVIL)})._repr_html_(),
        lambda: Log(EVIL)._repr_html_(),
        lambda: Future._repr_html_(SimpleNamespace(key=EVIL, type=EVIL, status=EVIL)),
        lambda: get_template("cluster.html.j2").render(
            type=EVIL,
            name=EVIL,
            workers={},
            dashboard_link=EVIL,
            scheduler_info_repr=EVIL,
            cluster_status=EVIL,
        ),
        lambda: get_template("computation.html.j2").render(
            id=EVIL, start=1, stop=2, groups=[EVIL], states={EVIL: EVIL}, code=[[EVIL]]
        ),
    ],
)
def test_whatever_else_distributed_draws_is_text_too(drawn):
    text = drawn()
    assert "<script" not in text
    assert "<img" not in text
    assert "&lt;script&gt;" in text
    assert "&amp;lt;" not in text  # escaped once


def published(kind, meta=None, parts=None):
    """Return a collection as its publisher, who may be anybody, described it."""
    return Described(kind, EVIL.removesuffix("\x1b[2J"), meta, parts).collection(lambda key: 1)


def test_published_collections_are_text():
    fields = np.empty(0, dtype=[(EVIL, "i4")])
    array = published("array", fields, ((1, 2),))
    frame = published("frame", pd.DataFrame({EVIL: [1]}).iloc[:0], (EVIL, EVIL))
    graphs = [array.dask, published("bag", parts=2).dask]
    for drawn in [each._repr_html_() for each in (array, frame, *graphs)]:
        assert "<script" not in drawn
        assert "<img" not in drawn
        assert "&amp;" not in drawn
    assert "<svg" in array._repr_html_()
    assert "<table" in frame._repr_html_()
    with_annotations = da.ones((4, 4), chunks=2).dask._repr_html_()
    assert with_annotations.count("<svg") == 3


class Versions:
    """A scheduler that says of versions what it likes."""

    def __init__(self, **said):
        self._said = {"scheduler": {}, "workers": {}, **said}

    async def versions(self, packages):
        return self._said["scheduler"]

    async def broadcast(self, msg, on_error):
        return self._said["workers"]


def warned_of(doors, **said):
    client = without(doors, HONEST)
    client.scheduler = Versions(**said)
    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always")
        found = asyncio.run(client._get_versions(check=True))
        asyncio.run(client._get_versions())
    assert found["workers"] == said["workers"]
    return [str(each.message) for each in caught]


@pytest.mark.parametrize(
    "evil", [{"python": EVIL}, {EVIL: "1"}, {"x": ["y"]}, {5: "x", None: "y"}, EVIL, [1], None]
)
def test_versions_that_differ_are_text(doors, evil):
    for said in ({"host": {}, "packages": evil}, evil):
        [text] = warned_of(doors, scheduler=said, workers={EVIL: said, "w": {}})
        assert "Mismatched versions" in text
        assert "\x1b" not in text


def test_a_table_of_versions_is_no_wider_than_a_screen_or_two(doors):
    many = {f"package-{number}": "1" for number in range(10_000)} | {"python": "3" * 100_000}
    [text] = warned_of(doors, scheduler={"packages": many}, workers={"w": {"packages": many}})
    assert len(text) < 500_000


# -- progress bars ---------------------------------------------------------------------------------


class Failed(Exception):
    """What a task may say of its failure."""


@pytest.fixture
def ipywidgets(monkeypatch):
    """Stand in for what shows a bar in a notebook: as it is told, HTML that it does not look at."""

    def made(*children, **_):
        return SimpleNamespace(value=None, children=children, bar_style=None)

    module = SimpleNamespace(**dict.fromkeys(("HTML", "FloatProgress", "HBox", "VBox"), made))
    monkeypatch.setitem(sys.modules, "ipywidgets", module)
    monkeypatch.setattr(progressbar, "get_scheduler", lambda _: "safeser://127.0.0.1:1")


def stopped(bar, draw, **said):
    draw(bar, status="error", **said)
    return bar.elapsed_time.value


@pytest.mark.parametrize("error", [Failed(EVIL), ValueError(EVIL), EVIL])
def test_an_error_that_a_bar_shows_is_text(ipywidgets, error):
    one = progressbar.ProgressWidget(["x"])
    several = progressbar.MultiProgressWidget(["x"])
    several.make_widget({"x": 1})
    for bar, left in ((one, 1), (several, {"x": 1})):
        stock = original(f"distributed.diagnostics.progressbar:{type(bar).__name__}._draw_stop")
        assert "<img" in stopped(bar, stock, remaining=left, exception=error), "the control"
        drawn = stopped(bar, type(bar)._draw_stop, remaining=left, exception=error)
        assert "&lt;img" in drawn
        assert "<img" not in drawn
        assert "&amp;lt;" not in drawn
        bar._draw_stop(remaining={}, status="finished")
        assert "Finished" in bar.elapsed_time.value


@pytest.fixture
def bars(ipywidgets):
    runner = SimpleNamespace(LoopRunner=lambda **_: None)
    with pytest.MonkeyPatch.context() as patched:
        patched.setattr(progressbar, "LoopRunner", runner.LoopRunner)
        text = progressbar.TextProgressBar(["x"], start=False)
    return {
        "text": text,
        "one": progressbar.ProgressWidget(["x"]),
        "several": progressbar.MultiProgressWidget(["x"]),
    }


@pytest.mark.parametrize(
    ("left", "total"),
    [
        (-(1 << 30), 1),  # a bar of forty billion signs
        (2, 1),
        (1 << 60, 1 << 60),
        (0.5, 1),
        (True, 1),
        ("1", 1),
        (Counter({EVIL: -5}), Counter()),  # less than nothing of it, told as so many
        (None, None),
    ],
)
def test_what_a_bar_counts_are_numbers(bars, capsys, left, total):
    for kind, bar in bars.items():
        several = kind == "several"
        told = {"remaining": {"x": left}, "all": {"x": total}} if several else {}
        with refusal(PayloadError, "raw.progress"):
            bar._draw_bar(**{"remaining": left, "all": total, "status": "running", **told})
    assert capsys.readouterr().out == ""


@pytest.mark.parametrize(
    ("left", "total"), [({}, {"x": 1}), ({"x": 1}, {}), (1, {"x": 1}), ({"x": 1}, 1)]
)
def test_what_several_bars_count_are_the_same_groups(bars, left, total):
    with pytest.raises(PayloadError):
        bars["several"]._draw_bar(remaining=left, all=total, status="running")


@pytest.mark.parametrize("said", ['<<TABLE HREF="javascript:alert(1)"/>>', " <b>x</b>\n"])
def test_no_name_is_html_of_graphviz(said):
    """Graphviz draws a label as it is if it begins with < and ends with >."""
    for drawn in (dask.dot.label(said), dask.dot.box_label(("x", said))):
        assert drawn == repr(said)
    assert dask.dot.label(("x", 1)) == "('x', 1)"
    assert dask.dot.box_label(("x", 5)) == "5"


MANY = np.broadcast_to(np.int8(1), (6,) * 11)


@pytest.mark.parametrize("said", [MANY, {"x": slice(MANY)}], ids=["array", "nested"])
def test_nobody_fills_a_notebook_with_one_byte(doors, said):
    worker = {**WORKER, "name": said, "metrics": {**MONITORED, "executing": said}}
    identity = {**INFO, "workers": {"w": worker}, "type": said, "total_threads": said}
    for drawn in (
        without(doors, identity)._repr_html_(),
        SchedulerInfo(identity)._repr_html_(),
    ):
        assert f"&lt;{type(said).__module__}.{type(said).__qualname__}&gt;" in drawn
        assert len(drawn) < 20_000


def test_keys_of_others_steer_no_terminal():
    """Futures and actors come out of queues, variables and datasets."""
    key = "\x1b[2J\u202eevil\r\x9b31m"
    for made in (Future(key), distributed.Actor(int, "safeser://127.0.0.1:1", key)):
        assert r"\x1b[2J\u202eevil\r\x9b31m" in repr(made)
        assert repr(made).isprintable()
    assert repr(Future("sum-1")) == "<Future: None, key: sum-1>"
