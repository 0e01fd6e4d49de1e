"""The picture of the architecture page: the rooms of the program, and the flow of a script and of a run through them."""

from __future__ import annotations

from html import escape

WIDTH, HEIGHT = 880, 470
BOX_WIDTH, BOX_HEIGHT = 118, 54

# Room to its column, its row and what it does. A room is a package of ddp_audit; `rules` is the package ddp_audit_rules.
ROOMS = {
    "cli": (0, 0, "commands"),
    "server": (1, 0, "editors"),
    "agents": (3, 0, "coding agents"),
    "cache": (2, 0, "earlier audits"),
    "fix": (4, 0, "changes to code"),
    "source": (0, 1, "files, settings"),
    "program": (1, 1, "one tree of nodes"),
    "explore": (2, 1, "each rank's events"),
    "rules": (3, 1, "questions, findings"),
    "report": (5, 1, "what people read"),
    "launch": (0, 2, "commands, batches"),
    "knowledge": (1, 2, "libraries, as data"),
    "machine": (2, 2, "DDP in Python"),
    "folding": (1, 3, "values of Python"),
    "tree": (3, 2, "what rules may ask"),
    "preflight": (0, 3, "before a job"),
    "trace": (2, 3, "records of ranks"),
    "compare": (4, 3, "where ranks diverge"),
}
# From, to, and whether it is the flow of a script or a run (drawn solid) or a question to a helper (dashed).
FLOW = [
    ("source", "program", True),
    ("program", "explore", True),
    ("explore", "rules", True),
    ("rules", "report", True),
    ("trace", "compare", True),
    ("compare", "report", True),
    ("launch", "program", False),
    ("knowledge", "program", False),
    ("machine", "explore", False),
    ("tree", "rules", False),
    ("rules", "fix", False),
    ("explore", "compare", False),
]


def drawing() -> str:
    """Return the SVG."""
    lines = [
        f'<svg viewBox="0 0 {WIDTH} {HEIGHT}" xmlns="http://www.w3.org/2000/svg" font-family="sans-serif">',
        "<style>",
        ".room { fill: #eef3f8; stroke: #4a6785; } .name { font-weight: bold; font-size: 14px; fill: #12283f; }",
        ".does { font-size: 11px; fill: #3c4a58; } .flow { stroke: #1f5fa8; stroke-width: 2; fill: none; }",
        ".asks { stroke: #7d8b99; stroke-width: 1.3; stroke-dasharray: 5 4; fill: none; }",
        "</style>",
        '<defs><marker id="tip" viewBox="0 0 8 8" refX="7" refY="4" markerWidth="7" markerHeight="7" orient="auto">'
        '<path d="M0,0 L8,4 L0,8 z" fill="#1f5fa8" /></marker></defs>',
    ]
    for start, end, is_flow in FLOW:
        (x1, y1), (x2, y2) = _edge(start, end), _edge(end, start)
        kind = "flow" if is_flow else "asks"
        lines.append(f'<line class="{kind}" x1="{x1}" y1="{y1}" x2="{x2}" y2="{y2}" marker-end="url(#tip)" />')
    for name, (_, _, does) in ROOMS.items():
        x, y = _corner(name)
        middle = x + BOX_WIDTH // 2
        lines.append(f'<rect class="room" x="{x}" y="{y}" width="{BOX_WIDTH}" height="{BOX_HEIGHT}" rx="6" />')
        lines.append(f'<text class="name" x="{middle}" y="{y + 23}" text-anchor="middle">{escape(name)}</text>')
        lines.append(f'<text class="does" x="{middle}" y="{y + 41}" text-anchor="middle">{escape(does)}</text>')
    return "\n".join([*lines, "</svg>"]) + "\n"


def _corner(name: str) -> tuple[int, int]:
    column, row, _ = ROOMS[name]
    return 12 + column * 147, 20 + row * 120


def _edge(name: str, other: str) -> tuple[int, int]:
    """The middle of the side of a room that faces another one."""
    (x, y), (x2, y2) = _corner(name), _corner(other)
    if ROOMS[name][1] == ROOMS[other][1]:
        return (x + BOX_WIDTH if x2 > x else x), y + BOX_HEIGHT // 2
    return x + BOX_WIDTH // 2, (y + BOX_HEIGHT if y2 > y else y)
