"""Show who may hand whom what at the most: a matrix of senders, recipients and kinds.

The one rule: each letter is an answer of :meth:`Policy.decide`; principals with the same answers
share a row.
"""

from __future__ import annotations

import html
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace

from safeser.gate.values import SEALED, UNKNOWN, Context, Kind
from safeser.policy.policy import Policy
from safeser.policy.questions.difference_text import people
from safeser.policy.questions.domain import Domain, Hops
from safeser.policy.rules import CODE_OPERATIONS, SEALED_IN, WEAKEST

__all__ = ["LEGEND", "Matrix", "matrix", "page", "text_of"]

#: What each letter means, the least first.
LEGEND: Mapping[str, str] = {
    ".": "nothing",
    "m": "msgpack: plain values",
    "d": "dask: arrays, frames and other typed data",
    "p": "pickle: the names of its profiles",
    "s": "sealed: code that an author signed",
    "C": "any code of the sender",
}

_LADDER = (("C", "cloudpickle"), ("p", "pickle"), ("d", "dask"), ("m", "msgpack"))

_LABEL = 22
_COLUMN = 6


@dataclass(frozen=True, slots=True)
class Matrix:
    """The most that passes between principals.

    :param classes: principals with the same answers, each class with its text.
    :param cells: a letter of :data:`LEGEND` for each kind, by sender's and recipient's class.
    """

    classes: tuple[str, ...]
    cells: Mapping[tuple[int, int], str]


def matrix(policy: Policy) -> Matrix:
    """Return what *policy* permits at the most, by any transport and from any host."""
    domain = Domain.of(policy)
    classes = [each for each in domain.classes if _matters(policy, each)]
    cells = {
        (row, column): "".join(
            _most(policy, Hops(senders, recipients, kind, ways), domain) for kind in Kind
        )
        for row, senders in enumerate(classes)
        for column, recipients in enumerate(classes)
        for ways in (tuple(way for each in domain.ways for way in each),)
    }
    return Matrix(tuple(people(policy, each) for each in classes), cells)


def _matters(policy: Policy, names: Sequence[str]) -> bool:
    if names != (UNKNOWN,):
        return True
    return any(UNKNOWN in rule.senders | rule.recipients for rule in policy.contexts)


def _most(policy: Policy, hops: Hops, domain: Domain) -> str:
    """Return the letter of the most that passes by any way, to be opened."""
    letters = {_letter(policy, hops._replace(ways=ways).context, domain) for ways in domain.ways}
    return max(letters, key=[*LEGEND].index)


def _letter(policy: Policy, context: Context, domain: Domain) -> str:
    families = [letter for letter, family in _LADDER if policy.decide(context, family).permitted]
    most = families[0] if families else "."
    if most == "C" or _runs(policy, context):
        return "C"
    return "s" if _takes_sealed(policy, context, domain) else most


def _runs(policy: Policy, context: Context) -> bool:
    """Tell whether an operation that runs what it is sent may be asked for without a signature."""
    rule = policy.match(context)
    if rule is None or rule.submission != "code":
        return False
    return any(
        policy.permits_operation(replace(context, operation=name)).permitted
        for name in CODE_OPERATIONS & rule.operations
        if WEAKEST[name].strength <= context.kind.strength
    )


def _takes_sealed(policy: Policy, context: Context, domain: Domain) -> bool:
    authors = (None, *domain.authors(context.sender))
    return any(
        policy.decide(replace(context, operation=name), SEALED, author=author).permitted
        for name in SEALED_IN
        if name is not None and WEAKEST[name].strength <= context.kind.strength
        for author in authors
    )


def text_of(shown: Matrix, *, width: int = 80) -> Iterator[str]:
    """Yield the lines of *shown*; classes that do not fit beside others go into further blocks."""
    fitting = max(1, (width - _LABEL - 4) // _COLUMN)
    numbers = range(len(shown.classes))
    for start in range(0, len(shown.classes), fitting):
        columns = numbers[start : start + fitting]
        head = "".join(f"{'to ' + str(column + 1):<{_COLUMN}}" for column in columns)
        yield f"{'':<{_LABEL + 4}}{head}".rstrip()
        for row, label in enumerate(shown.classes):
            cut = label if len(label) <= _LABEL else label[: _LABEL - 3] + "..."
            cells = "".join(f"{shown.cells[row, column]:<{_COLUMN}}" for column in columns)
            yield f"{row + 1:>2}  {cut:<{_LABEL}}{cells}".rstrip()


# --- one page -------------------------------------------------------------------------------------

_STYLE = """
:root { color-scheme: light dark; --line: #8884; }
body { font: 15px/1.5 system-ui, sans-serif; max-width: 70rem; margin: 2rem auto; padding: 0 1rem; }
table { border-collapse: collapse; margin: 1rem 0; }
th, td { border: 1px solid var(--line); padding: .25rem .5rem; text-align: left; }
thead th { vertical-align: bottom; }
td.cell { font-family: ui-monospace, monospace; white-space: nowrap; }
b { font-weight: 600; padding: 0 .15em; border-radius: .2em; }
.C { background: #c62828; color: #fff; } .s { background: #b26a00; color: #fff; }
.p { background: #7a5cc0; color: #fff; } .d { background: #1f6f8b; color: #fff; }
.m { background: #3b7d3b; color: #fff; } .n { opacity: .4; }
dt { font-weight: 600; margin-top: 1rem; } dd { margin: 0 0 0 1.5rem; }
"""


def page(policy: Policy) -> str:
    """Return one page of HTML that shows *policy* and loads nothing."""
    shown = matrix(policy)
    title = html.escape(f"{policy.name} revision {policy.revision}")
    head = "".join(f"<th>{html.escape(each)}</th>" for each in shown.classes)
    rows = "".join(
        f"<tr><th>{html.escape(label)}</th>"
        + "".join(
            f'<td class="cell">{_cell(shown.cells[row, column])}</td>'
            for column in range(len(shown.classes))
        )
        + "</tr>"
        for row, label in enumerate(shown.classes)
    )
    legend = "".join(f"<li>{_cell(each)} {html.escape(LEGEND[each])}</li>" for each in LEGEND)
    return (
        f'<!doctype html><html lang="en"><head><meta charset="utf-8"><title>{title}</title>'
        f"<style>{_STYLE}</style></head><body><h1>{title}</h1>"
        f"<p>SHA-256 <code>{html.escape(policy.sha256)}</code></p>"
        f"<h2>Who may hand whom what, at the most</h2>"
        f"<p>Rows send, columns receive. Four letters: admin, data, task, control.</p>"
        f"<table><thead><tr><th></th>{head}</tr></thead><tbody>{rows}</tbody></table>"
        f"<ul>{legend}</ul><h2>Contexts</h2>"
        f"<p>The first that matches decides; none matches: deny.</p><dl>{_contexts(policy)}</dl>"
        "</body></html>\n"
    )


def _cell(letters: str) -> str:
    return "".join(
        f'<b class="{"n" if letter == "." else letter}">{letter}</b>' for letter in letters
    )


def _contexts(policy: Policy) -> str:
    found = []
    for rule in policy.contexts:
        ends = f"{people(policy, rule.senders)} -> {people(policy, rule.recipients)}"
        kinds = ", ".join(kind.value for kind in Kind if kind in rule.kinds)
        found.append(f"<dt>{html.escape(f'{rule.name}: {ends}: {kinds}')}</dt>")
        found += [
            f"<dd>{html.escape(label)}: {html.escape(text)}</dd>" for label, text, _ in rule.rows()
        ]
    return "".join(found)
