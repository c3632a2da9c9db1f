"""
Print the states page's diagram and list of moves from the breaker's own table.

Without arguments the files are written; with ``--check`` the command fails when they differ from the table.
"""

from __future__ import annotations

import sys
from collections import defaultdict
from html import escape
from pathlib import Path

from halfopen._core.states import AUTOMATIC, ORDERS, State, diagram

HERE = Path(__file__).parent
PAGE = HERE / "states.md"
PICTURE = HERE / "_static" / "states.svg"
BEGIN, END = "<!-- moves: printed by docs/print_states.py -->", "<!-- end of moves -->"

WIDTH, HEIGHT, BOX = 980, 600, (170, 44)
PLACES = {
    State.CLOSED: (160, 100),
    State.OPEN: (820, 100),
    State.HALF_OPEN: (820, 380),
    State.RECOVERING: (160, 380),
    State.FORCED_OPEN: (160, 510),
    State.DISABLED: (490, 510),
    State.METRICS_ONLY: (820, 510),
}
OVERRIDES = (State.FORCED_OPEN, State.DISABLED, State.METRICS_ONLY)
# Where an arrow leaves and arrives, from the middle of a box; where its label begins, from the middle of the arrow.
LANES = {
    (State.CLOSED, State.OPEN): ((85, -8), (-85, -8), (0, -58)),
    (State.OPEN, State.HALF_OPEN): ((40, 22), (40, -22), (8, 0)),
    (State.HALF_OPEN, State.OPEN): ((-30, -22), (-30, 22), (-8, -24)),
    (State.HALF_OPEN, State.CLOSED): ((-85, -12), (60, 22), (-170, -30)),
    (State.HALF_OPEN, State.RECOVERING): ((-85, 8), (85, 8), (0, 22)),
    (State.RECOVERING, State.CLOSED): ((-40, -22), (-40, 22), (-8, 0)),
    (State.RECOVERING, State.OPEN): ((60, -22), (-85, 12), (105, -12)),
}


def moves() -> dict[tuple[State, State], list[str]]:
    """Return the automatic moves, each with its triggers."""
    found: dict[tuple[State, State], list[str]] = defaultdict(list)
    for (old, reason), targets in AUTOMATIC.items():
        for new in targets:
            found[old, new].append(reason.value)
    return dict(found)


def picture() -> str:
    """Draw the moves as SVG, in colours that read on light and dark pages."""
    parts = [
        f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {WIDTH} {HEIGHT}" '
        'font-family="sans-serif" font-size="13">',
        "<title>The states of a circuit breaker and the moves between them</title>",
        '<rect width="100%" height="100%" fill="#ffffff" rx="8"/>',
        '<defs><marker id="tip" viewBox="0 0 8 8" refX="7" refY="4" markerWidth="8" markerHeight="8" orient="auto">'
        '<path d="M0 0 8 4 0 8z" fill="#444"/></marker></defs>',
    ]
    parts += [_arrow(old, new, names) for (old, new), names in moves().items() if old not in OVERRIDES]
    parts += [_override(state) for state in OVERRIDES]
    parts += [_box(state) for state in PLACES]
    parts.append("</svg>")
    return "\n".join(parts) + "\n"


def _arrow(old: State, new: State, names: list[str]) -> str:
    leave, arrive, label = LANES[old, new]
    x1, y1 = PLACES[old][0] + leave[0], PLACES[old][1] + leave[1]
    x2, y2 = PLACES[new][0] + arrive[0], PLACES[new][1] + arrive[1]
    anchor = "middle" if abs(label[0]) < 5 else "start" if label[0] > 0 else "end"
    line = f'<line x1="{x1}" y1="{y1}" x2="{x2}" y2="{y2}" stroke="#444" stroke-width="1.5" marker-end="url(#tip)"/>'
    return line + _text((x1 + x2) // 2 + label[0], (y1 + y2) // 2 + label[1], names, anchor)


def _override(state: State) -> str:
    x, y = PLACES[state]
    orders = [f"by order: {order}()" for order, target in ORDERS.items() if target == state]
    ends = [f"{name} → closed" for name in moves()[state, State.CLOSED]]
    return _text(x, y + 42, orders + ends, "middle")


def _text(x: int, y: int, lines: list[str], anchor: str) -> str:
    rows = "".join(
        f'<tspan x="{x}" dy="{0 if row == 0 else 15}">{escape(line)}</tspan>' for row, line in enumerate(lines)
    )
    return f'<text x="{x}" y="{y}" text-anchor="{anchor}" fill="#333">{rows}</text>'


_COLOURS = {State.CLOSED: "#2f7d4f", State.OPEN: "#b3372f", State.HALF_OPEN: "#b07a14", State.RECOVERING: "#2f6f9f"}


def _box(state: State) -> str:
    (x, y), (width, height) = PLACES[state], BOX
    colour = _COLOURS.get(state, "#666666")
    return (
        f'<rect x="{x - width // 2}" y="{y - height // 2}" width="{width}" height="{height}" rx="8" fill="{colour}"/>'
        f'<text x="{x}" y="{y + 5}" text-anchor="middle" fill="#fff" font-weight="bold">{state.name}</text>'
    )


def table() -> str:
    """List every move, the automatic ones and the orders, as Markdown, and the same as a Mermaid diagram."""
    rows = ["| from | on | to |", "|---|---|---|"]
    rows += [
        f"| {old.name} | `{reason}` | {' or '.join(new.name for new in targets)} |"
        for (old, reason), targets in AUTOMATIC.items()
    ]
    rows += [f"| any state | order `{order}()` | {new.name} |" for order, new in ORDERS.items()]
    return "\n".join(rows) + "\n\nThe same as text for Mermaid:\n\n```text\n" + diagram() + "```\n"


def page() -> str:
    """Return the states page with the list of moves as the table has it now."""
    before, rest = PAGE.read_text(encoding="utf-8").split(BEGIN)
    return f"{before}{BEGIN}\n\n{table()}\n{END}{rest.split(END)[1]}"


def main() -> int:
    """Write both files, or say which one is out of date."""
    wanted = {PICTURE: picture(), PAGE: page()}
    stale = [path for path, text in wanted.items() if not path.exists() or path.read_text(encoding="utf-8") != text]
    if "--check" in sys.argv[1:]:
        for path in stale:
            print(f"{path.name} differs from the table of moves; run: make docs", file=sys.stderr)
        return 1 if stale else 0
    for path in stale:
        path.write_text(wanted[path], encoding="utf-8")
    return 0


if __name__ == "__main__":
    sys.exit(main())
