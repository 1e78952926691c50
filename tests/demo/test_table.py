"""The table of attacks, as a user sees it, and which outcomes are expected."""

from __future__ import annotations

import io
import re
import shlex

import pytest

from examples.demo.attack_run import AttackRun, Outcome, _Side
from examples.demo.attacks import ATTACKS, Attack, markers
from examples.demo.errors import StepFailed
from examples.demo.folder import Folder
from examples.demo.refusals import Refusal
from examples.demo.screen import Row, Screen

ATTACK = Attack("run", "run", "bob", "worker")
REFUSED = (Refusal("bob", "worker", "operation.not-granted"),)


def shown(width: int, monkeypatch, draw) -> list[str]:
    monkeypatch.setenv("COLUMNS", str(width))
    output = io.StringIO()
    draw(Screen(output))
    assert "\x1b" not in output.getvalue(), "colour in a pipe"
    return output.getvalue().splitlines()


@pytest.mark.parametrize("width", [80, 120])
def test_the_table_fits(width: int, monkeypatch) -> None:
    rows = [
        Row(each.what, each.attacker, each.recipient, "ran", "families.type-serialized")
        for each in ATTACKS
    ]
    lines = shown(width, monkeypatch, lambda screen: screen.table(rows))
    assert len(lines) == len(rows) + 2, "a row is wrapped"
    assert all(len(line.rstrip()) <= width for line in lines)
    for row, line in zip(rows, lines[2:], strict=True):
        assert line.startswith(row.what)
        assert row.safeser in line


def test_text_is_never_markup(monkeypatch) -> None:
    def draw(screen: Screen) -> None:
        screen.table([Row("[red]x[/red]", "bob", "worker", "ran", "[link]y", good=False)])
        screen.result("[b]", "[i]found[/i] :smile:")
        screen.failed("[bold]no", ["[red]log"])

    text = "\n".join(shown(120, monkeypatch, draw))
    for each in ("[red]x[/red]", "[link]y", "[i]found[/i] :smile:", "[bold]no", "| [red]log"):
        assert each in text


def test_sentences_wrap_under_their_step_and_commands_never(monkeypatch) -> None:
    def draw(screen: Screen) -> None:
        screen.title("title")
        screen.step("first")
        screen.say("word " * 40)
        screen.result("what", "found " * 30)
        screen.command(["safeser", "x" * 100, "y" * 60, "it's"])
        screen.location("keys", "/y" * 60)
        screen.blank()

    lines = shown(80, monkeypatch, draw)
    assert "1  first" in lines
    assert sum(line.startswith("   word") for line in lines) == 3
    assert sum(line.startswith("      found") for line in lines) == 2
    assert f"   $ safeser {'x' * 100} {'y' * 60} 'it'\"'\"'s'" in lines
    assert any(line.endswith("/y" * 60) for line in lines)


def test_in_a_pipe_waiting_shows_nothing(monkeypatch) -> None:
    def draw(screen: Screen) -> None:
        with screen.waiting("long"), screen.progress("tasks") as progress:
            progress.update(progress.task_ids[0], completed=1, total=2)

    assert not "".join(shown(80, monkeypatch, draw)).strip()


@pytest.mark.parametrize("width", [40, 80, 120])
def test_on_a_terminal_a_long_command_is_continued_between_words(width: int, monkeypatch) -> None:
    monkeypatch.setenv("FORCE_COLOR", "1")
    monkeypatch.setenv("COLUMNS", str(width))
    output = io.StringIO()
    words = [
        "safeser",
        "policy",
        "explain",
        "a b",
        *("--opt value " * 9).split(),
        "-x",
        "--",
        "/p" * 30,
    ]
    Screen(output).command(words)
    text = re.sub(r"\x1b\[[0-9;]*m", "", output.getvalue())
    lines = text.splitlines()
    assert all(len(line) <= width for line in lines if "/p/p" not in line)
    assert lines[0].startswith("   $ safeser policy")
    assert all(line.startswith("      ") for line in lines[1:])
    assert all(line.count("--opt") == line.count("--opt value") for line in lines)
    # What is copied after the prompt is the command.
    assert shlex.split(text.replace("\\\n", " ").strip().removeprefix("$ ")) == words


def test_every_attack_has_a_name_and_markers_of_its_own(tmp_path) -> None:
    names = [path for attack in ATTACKS for path in markers(tmp_path, attack)]
    assert len(set(names)) == len(names) == sum(attack.forms for attack in ATTACKS)


def test_expected_is_ran_on_stock_and_refused_by_a_rule() -> None:
    outcome = Outcome(ATTACK, True, False, REFUSED)
    outcome.require_expected()
    assert outcome.row == Row("run", "bob", "worker", "ran", "operation.not-granted")


@pytest.mark.parametrize(
    ("stock", "safeser", "refusals", "reason"),
    [
        (True, True, REFUSED, "ran on safeser://"),
        (True, False, (), "no record says"),
        (False, False, REFUSED, "its refusal by safeser proves nothing"),
    ],
)
def test_anything_else_ends_the_demo(stock, safeser, refusals, reason) -> None:
    with pytest.raises(StepFailed, match=reason):
        Outcome(ATTACK, stock, safeser, refusals).require_expected()


def test_a_row_says_who_refused_if_it_was_somebody_on_the_way() -> None:
    attack = Attack("warn-event", "warn event", "worker", "alice")
    by_scheduler = Refusal("worker", "scheduler", "context.family")
    by_alice = Refusal("worker", "alice", "raw.warn")
    assert Outcome(attack, True, False, (by_scheduler,)).row.safeser == "context.family (scheduler)"
    assert Outcome(attack, True, False, (by_scheduler, by_alice)).row.safeser == "raw.warn"
    failed = Outcome(attack, False, True, ()).row
    assert (failed.stock, failed.safeser, failed.good) == ("refused", "RAN", False)
    assert Outcome(attack, True, False, ()).row.safeser == "no rule recorded"
    assert Outcome(Attack("i", "i", "impostor", "worker"), True, False, ()).row.sender == "stranger"


def test_what_ran_late_ran(tmp_path) -> None:
    """A refusal of something else may be recorded before a busy scheduler opens the payload."""
    folder = Folder(tmp_path)
    attack_run = AttackRun(None, folder, "demo", None, None, None, None)  # type: ignore[arg-type]
    side = _Side("safeser", None, None, None, None)  # type: ignore[arg-type]
    refused = Outcome(ATTACK, stock=True, safeser=False, refusals=REFUSED)
    assert attack_run._checked_again(refused, side) == refused
    (marker, *_) = markers(folder.markers("safeser"), ATTACK)
    marker.parent.mkdir(parents=True)
    marker.touch()
    with pytest.raises(StepFailed, match="ran on safeser"):
        attack_run._checked_again(refused, side).require_expected()


def test_alices_own_code_must_run() -> None:
    attack_run = AttackRun(None, None, "demo", None, None, None, None)  # type: ignore[arg-type]
    attack_run._alice_ran.update(stock=True, safeser=True)
    attack_run.require_expected()
    assert attack_run.rows[-1].safeser == "ran: permitted"
    attack_run._alice_ran["safeser"] = False
    assert attack_run.rows[-1].safeser == "REFUSED"
    with pytest.raises(StepFailed, match="although the policy permits it"):
        attack_run.require_expected()
