#!/usr/bin/env python3
"""A picture of one step of a trace.json: trace_picture.py RUN/trace.json STEP OUT.svg [TITLE]

Rows are the main thread, streams and lanes; filled pieces are work, coloured by what it is for; light hatched pieces are
waits, coloured by what they count as. The step's time on the compute stream lies between the two dashed lines. Pieces
too small to see are drawn as one. Python's standard library only."""
import json
import sys
from html import escape

WIDTH, LEFT, RIGHT, TOP, ROW, BAR = 1200, 150, 20, 64, 34, 22
COLOURS = {"forward": "#4e79a7", "backward": "#2f4b7c", "d2h": "#e15759", "adam": "#f28e2b", "h2d": "#59a14f",
           "other": "#8c8c8c", "main": "#b9b3c9", "compute": "#4e79a7"}
LEGEND = [("forward", "forward"), ("backward", "head, backward"), ("d2h", "gradients to the host"), ("adam", "optimizer"),
          ("h2d", "weights and tokens to the device"), ("main", "main thread's own work")]


def load(path):
    events = json.load(open(path))["traceEvents"]
    names = {e["tid"]: e["args"]["name"] for e in events if e["name"] == "thread_name"}
    return names, [e for e in events if e["ph"] == "X"]


def kind(event, track, purpose):
    """What a piece is drawn as: (colour, is it work); None for idle time that nothing explains. purpose: of each op."""
    if event["cat"] == "wait" and track != "stream compute" and event["args"].get("awaited") in purpose:
        return purpose[event["args"]["awaited"]], False
    if event["cat"] in ("wait", "idle"):
        causes = event["args"]["idle_us"]
        if not causes:
            return None
        cause = max(causes, key=causes.get)
        if event["cat"] == "idle" and cause == "other":
            return None
        return cause, False
    if track == "main thread":
        return "main", True
    if event["cat"] == "compute":
        return ("backward" if event["name"].startswith(("head", "backward")) else "forward"), True
    return event["cat"], True


def pieces(events, track, purpose, begin, end, least):
    """Neighbours of a kind with gaps below `least` are one piece; those still below `least` grow to it if they are work and
    go if they are not."""
    merged = []
    for event in sorted(events, key=lambda e: e["ts"]):
        drawn = kind(event, track, purpose)
        first, last = max(event["ts"], begin), min(event["ts"] + event["dur"], end)
        if drawn is None or last <= first:
            continue
        label = event["args"].get("for") or event["name"]
        if merged and merged[-1][0] == drawn and first - merged[-1][2] < least:
            merged[-1][2] = last
            merged[-1][4] += 1
        else:
            merged.append([drawn, first, last, label, 1])
    out = []
    for piece in merged:
        if piece[2] - piece[1] < least:
            if not piece[0][1]:
                continue
            piece[2] = piece[1] + least
        out.append(piece)
    return out


def ticks(span_ms):
    step = next(s * 10 ** p for p in range(-3, 6) for s in (1, 2, 5) if span_ms / (s * 10 ** p) <= 12)
    count = int(span_ms / step + 1e-9)
    return [step * i for i in range(count + 1)]


def picture(names, events, number, title):
    step = next(e for e in events if e["cat"] == "step" and e["args"]["step"] == number)
    span = step["dur"]
    begin, end = step["ts"] - 0.04 * span, step["ts"] + 1.3 * span
    least = 1.2 * (end - begin) / (WIDTH - LEFT - RIGHT)
    x = lambda us: LEFT + (us - begin) / (end - begin) * (WIDTH - LEFT - RIGHT)
    purpose = {e["args"]["op"]: e["cat"] for e in events if "op" in e["args"] and e["cat"] != "wait"}
    rows = []
    for tid, name in names.items():
        if name == "steps":
            continue
        drawn = pieces([e for e in events if e["tid"] == tid], name, purpose, begin, end, least)
        if any(p[0][1] for p in drawn):
            rows.append((name, drawn))
    bottom = TOP + ROW * len(rows)
    svg = [f'<svg xmlns="http://www.w3.org/2000/svg" width="{WIDTH}" height="{bottom + 92}" '
           f'viewBox="0 0 {WIDTH} {bottom + 92}" font-family="Helvetica, Arial, sans-serif" font-size="12">',
           '<rect width="100%" height="100%" fill="white"/><defs>']
    for name, colour in COLOURS.items():
        svg.append(f'<pattern id="w-{name}" width="6" height="6" patternTransform="rotate(45)" '
                   f'patternUnits="userSpaceOnUse"><rect width="6" height="6" fill="{colour}" fill-opacity="0.12"/>'
                   f'<rect width="1.6" height="6" fill="{colour}" fill-opacity="0.55"/></pattern>')
    svg.append("</defs>")
    svg.append(f'<text x="{LEFT}" y="24" font-size="16" font-weight="bold">{escape(title)}</text>')
    for ms in ticks((end - step["ts"]) / 1000):
        at = x(step["ts"] + ms * 1000)
        svg.append(f'<line x1="{at:.1f}" x2="{at:.1f}" y1="{TOP}" y2="{bottom}" stroke="#e4e4e4"/>'
                   f'<text x="{at:.1f}" y="{bottom + 16}" text-anchor="middle" fill="#555">{ms:g}</text>')
    svg.append(f'<text x="{LEFT - 8}" y="{bottom + 16}" text-anchor="end" fill="#555">ms</text>')
    for i, (name, drawn) in enumerate(rows):
        y = TOP + ROW * i
        svg.append(f'<text x="{LEFT - 8}" y="{y + ROW / 2 + 4}" text-anchor="end">{escape(name)}</text>'
                   f'<line x1="{LEFT}" x2="{WIDTH - RIGHT}" y1="{y + ROW}" y2="{y + ROW}" stroke="#eee"/>')
        for (colour, work), first, last, label, count in drawn:
            fill = COLOURS[colour] if work else f"url(#w-{colour})"
            more = f" and {count - 1} more" if count > 1 else ""
            tip = f'{"" if work else "wait: "}{label}{more}, {(last - first) / 1000:.2f} ms'
            svg.append(f'<rect x="{x(first):.1f}" y="{y + (ROW - BAR) / 2:.0f}" width="{x(last) - x(first):.1f}" '
                       f'height="{BAR}" fill="{fill}"><title>{escape(tip)}</title></rect>')
    for us, side, text in ((step["ts"], "start", f"step {number} begins"),
                           (step["ts"] + span, "start", f"its backward ends: {span / 1000:.0f} ms")):
        at = x(us)
        svg.append(f'<line x1="{at:.1f}" x2="{at:.1f}" y1="{TOP - 8}" y2="{bottom}" stroke="#333" '
                   f'stroke-dasharray="4 3"/><text x="{at + 3:.1f}" y="{TOP - 10}" text-anchor="{side}" '
                   f'fill="#333">{text}</text>')
    at, y = LEFT, bottom + 36
    for name, text in LEGEND:
        svg.append(f'<rect x="{at}" y="{y}" width="14" height="14" fill="{COLOURS[name]}"/>'
                   f'<text x="{at + 19}" y="{y + 12}">{text}</text>')
        at += 40 + 6.4 * len(text)
    svg.append(f'<rect x="{LEFT}" y="{y + 24}" width="14" height="14" fill="url(#w-adam)"/><text x="{LEFT + 19}" '
               f'y="{y + 36}">waiting; the colour says what for (here: the optimizer)</text></svg>')
    return "\n".join(svg)


def main():
    if len(sys.argv) not in (4, 5):
        sys.exit(__doc__)
    path, number, out = sys.argv[1], int(sys.argv[2]), sys.argv[3]
    names, events = load(path)
    steps = [e["args"]["step"] for e in events if e["cat"] == "step"]
    if number not in steps:
        sys.exit(f"{path} has no step {number}; it has {', '.join(map(str, steps))}")
    with open(out, "w") as file:
        file.write(picture(names, events, number, sys.argv[4] if len(sys.argv) == 5 else f"step {number}"))


main()
