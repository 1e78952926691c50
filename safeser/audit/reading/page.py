"""One self-contained page of HTML about a log: no script, no other host, light and dark.

The one rule: every text of a record is escaped twice, control characters first and markup then, and
the page's own policy lets a browser load and run nothing.
"""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from html import escape

from safeser.audit.reading.show import escaped, when
from safeser.audit.reading.summary import OTHER, Summary

__all__ = ["page"]

#: Rows of one table; the others are one row.
_ROWS = 25

_FAMILIES = 10  # columns of the table of pairs

_BARS = 60  # at most, of the picture over time
_WIDTH, _HEIGHT, _BASE = 960, 180, 150

_STYLE = """
:root{color-scheme:light dark;--ink:#1d2430;--soft:#5b6676;--line:#d8dee8;--paper:#fff;
--card:#f6f8fb;--ok:#2f6fbd;--bad:#c2362b;--shade:47,111,189}
@media (prefers-color-scheme:dark){:root{--ink:#e6eaf1;--soft:#9aa6b8;--line:#333c4a;
--paper:#14181f;
--card:#1c222c;--ok:#6ea8ee;--bad:#f0776c;--shade:110,168,238}}
*{box-sizing:border-box}body{margin:0;background:var(--paper);color:var(--ink);
font:15px/1.5 system-ui,sans-serif}main{max-width:1040px;margin:0 auto;padding:32px 24px 64px}
h1{font-size:26px;margin:0 0 4px}h2{font-size:18px;margin:36px 0 8px}
p{margin:4px 0;color:var(--soft)}
.cards{display:flex;flex-wrap:wrap;gap:12px;margin:20px 0 8px}.card{background:var(--card);
border:1px solid var(--line);border-radius:10px;padding:12px 18px;min-width:150px}
.card b{display:block;font-size:24px;font-variant-numeric:tabular-nums}.bad{color:var(--bad)}
.scroll{overflow-x:auto;border:1px solid var(--line);border-radius:10px}
table{border-collapse:collapse;width:100%;font-size:14px}th,td{padding:6px 12px;text-align:left;
border-bottom:1px solid var(--line);vertical-align:top;overflow-wrap:anywhere}
tr:last-child td{border-bottom:0}th{background:var(--card);font-weight:600}
.n{text-align:right;font-variant-numeric:tabular-nums;white-space:nowrap}
/* Red on a dark shade could not be read. */
td .bad{background:var(--paper);border-radius:4px;padding:0 4px}
svg{width:100%;height:auto;display:block;margin-top:8px}.ok{fill:var(--ok)}.no{fill:var(--bad)}
svg text{fill:var(--soft);font-size:12px}svg line{stroke:var(--line)}
.key span{display:inline-block;width:11px;height:11px;border-radius:2px;margin:0 6px 0 14px}
"""


def page(summary: Summary, *, logs: Sequence[str], skipped: Sequence[str], made: str) -> str:
    """Return the page.

    :param logs: the files and folders that were read.
    :param skipped: each file or line that was not read, with the reason.
    :param made: the time at which it is made, as text.
    """
    title = "safeser audit report"
    head = (
        "<meta charset=utf-8><meta name=viewport content='width=device-width,initial-scale=1'>"
        "<meta http-equiv=Content-Security-Policy content=\"default-src 'none'; "
        "style-src 'unsafe-inline'; base-uri 'none'; form-action 'none'\">"
        f"<meta name=referrer content=no-referrer><title>{title}</title><style>{_STYLE}</style>"
    )
    places = ", ".join(map(_text, logs))
    parts = [
        f"<h1>{title}</h1>",
        f"<p>{_second(summary.first)} to {_second(summary.last)} UTC, from {places}."
        f" Made {_text(made)}.</p>",
        "<p>The records were read, not verified: <code>safeser audit verify</code> does that.</p>",
        _cards(summary),
        _over_time(summary),
        _pairs(summary),
        _refusals("Refusals by rule and peer", summary.refusals, summary.reasons),
        _code(summary),
        _refusals("What the shadow policy would have refused", summary.shadow),
        _left_out(skipped),
    ]
    return (
        f"<!doctype html><html lang=en><head>{head}</head><body><main>{''.join(parts)}</main>"
        "</body></html>\n"
    )


def _second(time: int) -> str:
    return when(time)[:19].replace("T", " ")


def _text(value: str) -> str:
    """Return *value* for HTML, also inside of a quoted attribute."""
    return escape(escaped(value), quote=True)


def _cards(summary: Summary) -> str:
    refused = sum(each[1] for each in summary.parts.values())
    users = {user for user, *_ in summary.code}
    cards = [
        (f"{summary.records:,}", "decisions", ""),
        (f"{refused:,}", "refused", "bad" if refused else ""),
        (f"{len({pair[:2] for pair in summary.pairs}):,}", "pairs of sender and recipient", ""),
        (f"{len(users):,}", "users whose code ran", ""),
    ]
    if summary.shadow:
        cards.append((f"{sum(summary.shadow.values()):,}", "refused by the shadow policy", "bad"))
    found = (
        f'<div class=card><b class="{kind}">{number}</b>{name}</div>'
        for number, name, kind in cards
    )
    return f"<div class=cards>{''.join(found)}</div>"


def _over_time(summary: Summary) -> str:
    if not summary.parts:
        return "<h2>Decisions over time</h2><p>The log holds none.</p>"
    start = min(summary.parts)
    wide = max(1, math.ceil((max(summary.parts) - start + 1) / _BARS))
    bars = [[0, 0] for _ in range(math.ceil((max(summary.parts) - start + 1) / wide))]
    for number, (permitted, refused) in summary.parts.items():
        bars[(number - start) // wide][0] += permitted
        bars[(number - start) // wide][1] += refused
    most = max(sum(bar) for bar in bars)
    step = _WIDTH / len(bars)
    drawn = []
    for place, (permitted, refused) in enumerate(bars):
        at = _second((start + place * wide) * summary.part)
        tip = f"<title>{at}: {permitted:,} permitted, {refused:,} refused</title>"
        # A bar of one refusal among a million is drawn two pixels high: it is what one looks for.
        red = max(2.0, refused / most * _BASE) if refused else 0.0
        blue = permitted / most * (_BASE - red)
        for kind, top, high in (("ok", _BASE - blue, blue), ("no", _BASE - blue - red, red)):
            drawn.append(
                f"<rect class={kind} x={place * step:.1f} y={top:.1f} width={step * 0.86:.1f}"
                f" height={high:.1f}>{tip}</rect>"
            )
    ends = (
        f"<text x=0 y={_HEIGHT - 8}>{when(summary.first, short=True)}</text>"
        f"<text x={_WIDTH} y={_HEIGHT - 8} text-anchor=end>{when(summary.last, short=True)}</text>"
        f"<line x1=0 x2={_WIDTH} y1={_BASE} y2={_BASE} />"
    )
    span = _duration(wide * summary.part // 1_000_000)
    return (
        "<h2>Decisions over time</h2>"
        f"<p>At most {most:,} in {span}."
        "<span class=key><span style='background:var(--ok)'></span>permitted"
        "<span style='background:var(--bad)'></span>refused</span></p>"
        f"<svg viewBox='0 0 {_WIDTH} {_HEIGHT}' role=img aria-label='Decisions over time'>"
        f"{''.join(drawn)}{ends}</svg>"
    )


def _duration(seconds: int) -> str:
    for unit, size in (("day", 86_400), ("hour", 3_600), ("minute", 60)):
        if seconds >= size:
            number = round(seconds / size)
            return f"{number} {unit}{'s' * (number > 1)}"
    return f"{seconds} second{'s' * (seconds != 1)}"


def _pairs(summary: Summary) -> str:
    weight: Counter[str] = Counter()
    for (*_, family), counts in summary.pairs.items():
        weight[family] += sum(counts)
    chosen = sorted(name for name, _ in weight.most_common(_FAMILIES))
    if len(weight) > len(chosen):
        chosen.append(OTHER)
    rows: dict[tuple[str, ...], dict[str, list[int]]] = {}
    for (sender, recipient, family), counts in summary.pairs.items():
        shown = family if family in chosen else OTHER
        both = rows.setdefault((sender, recipient), {}).setdefault(shown, [0, 0])
        both[0] += counts[0]
        both[1] += counts[1]
    most = max((sum(each) for each in summary.pairs.values()), default=1) or 1
    order = sorted(rows, key=lambda pair: (-sum(map(sum, rows[pair].values())), pair))
    lines = [
        [_text(sender), _text(recipient), *(_heat(rows[sender, recipient].get(family), most)
                                            for family in chosen)]
        for sender, recipient in order[:_ROWS]
    ]  # fmt: skip
    columns = ["sender", "recipient", *map(_text, chosen)]
    text = "Numbers are permitted messages and payloads; in red, refused ones."
    return _section("Who talks to whom, by family", text, columns, lines, len(order), raw=2)


def _heat(counts: Sequence[int] | None, most: int) -> str:
    if counts is None:
        return "<td class=n></td>"
    permitted, refused = counts
    strength = 0.06 + 0.44 * math.log1p(permitted) / math.log1p(most) if permitted else 0.0
    red = f" <span class=bad>{refused:,}</span>" if refused else ""
    shown = f"{permitted:,}" if permitted else ""
    return f"<td class=n style='background:rgba(var(--shade),{strength:.2f})'>{shown}{red}</td>"


def _refusals(
    title: str,
    counts: Counter[tuple[str, ...]],
    reasons: Mapping[tuple[str, ...], str] | None = None,
) -> str:
    order = sorted(counts.items(), key=lambda each: (-each[1], each[0]))
    lines = [[*map(_text, key), _number(count)] for key, count in order[:_ROWS]]
    columns = ["rule", "sender", "times"]
    if reasons is not None:
        columns.append("reason, for example")
        for line, (key, _) in zip(lines, order, strict=False):
            line.append(_text(reasons.get(key, "")))
    return _section(title, "", columns, lines, len(order))


def _code(summary: Summary) -> str:
    of_user: Counter[str] = Counter()
    for (user, *_), code in summary.code.items():
        of_user[user] += code.count
    order = sorted(
        summary.code.items(),
        key=lambda each: (-of_user[each[0][0]], each[0][0], -each[1].count, each[0]),
    )
    lines = [
        [
            *map(_text, key),
            _number(code.count),
            _text(when(code.first, short=True)),
            _text(when(code.last, short=True)),
            ", ".join(map(_text, sorted(code.tasks))),
        ]
        for key, code in order[:_ROWS]
    ]
    text = (
        "The user is the one whose task it was, as the sender states, or else who wrote the code."
        " The sender is proven by its key."
    )
    columns = ["user", "sender", "arrived at", "family", "times", "first", "last"]
    columns.append("tasks, for example")
    return _section("Who ran code", text, columns, lines, len(order))


def _left_out(skipped: Sequence[str]) -> str:
    if not skipped:
        return ""
    lines = [[_text(each)] for each in skipped[:_ROWS]]
    return _section("Files that were left out", "", ["what, and why"], lines, len(skipped))


def _number(count: int) -> str:
    return f"<td class=n>{count:,}</td>"


def _section(
    title: str,
    text: str,
    columns: Sequence[str],
    lines: Sequence[Sequence[str]],
    total: int,
    *,
    raw: int = 0,
) -> str:
    """Return a table under a heading.

    :param lines: cells, which are HTML already; those that are whole ``td`` elements stay so.
    :param raw: the first column from which on headings are of numbers, if there is one.
    """
    if not lines:
        return f"<h2>{title}</h2><p>None.</p>"
    heads = "".join(
        f"<th{' class=n' if name == 'times' or (raw and place >= raw) else ''}>{name}</th>"
        for place, name in enumerate(columns)
    )
    rows = "".join(f"<tr>{_cells(line)}</tr>" for line in lines)
    beyond = f"<p>{total - len(lines):,} more are not shown.</p>" if total > len(lines) else ""
    said = f"<p>{text}</p>" if text else ""
    return (
        f"<h2>{title}</h2>{said}<div class=scroll><table><thead><tr>{heads}</tr></thead>"
        f"<tbody>{rows}</tbody></table></div>{beyond}"
    )


def _cells(line: Iterable[str]) -> str:
    # Only this module writes "<td": in an escaped text there is no "<".
    return "".join(cell if cell.startswith("<td") else f"<td>{cell}</td>" for cell in line)
