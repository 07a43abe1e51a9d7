"""A picture of what variants cost in loss: a dot for each seed, a bar at the mean. Python's standard library only."""
import statistics
from html import escape

LEFT, RIGHT, TOP, HEIGHT, COLUMN = 90, 24, 72, 260, 150
SEED_COLOURS = ("#4e79a7", "#f28e2b", "#59a14f", "#e15759", "#76b7b2")
FONT = 'font-family="Helvetica, Arial, sans-serif" font-size="12"'


def ticks(low: float, high: float) -> list:
    """Round numbers, four to ten of them, that hold low and high."""
    step = next(s * 10.0 ** p for p in range(-6, 3) for s in (1, 2, 5) if (high - low) / (s * 10.0 ** p) <= 8)
    first, last = int(low // step), int(-(-high // step))
    return [step * i for i in range(first, last + 1)]


def picture(title: str, baseline: str, costs: dict) -> str:
    """costs: per variant, per seed, by how many nats its held-out loss is above the baseline's at that seed."""
    values = [cost for by_seed in costs.values() for cost in by_seed.values()] + [0.0]
    marks = ticks(min(values), max(values))
    width = max(LEFT + COLUMN * len(costs) + RIGHT, 560)
    bottom = TOP + HEIGHT
    y = lambda cost: bottom - (cost - marks[0]) / (marks[-1] - marks[0]) * HEIGHT
    svg = [f'<svg xmlns="http://www.w3.org/2000/svg" width="{width}" height="{bottom + 64}" '
           f'viewBox="0 0 {width} {bottom + 64}" {FONT}>', '<rect width="100%" height="100%" fill="white"/>',
           f'<text x="{LEFT}" y="24" font-size="16" font-weight="bold">{escape(title)}</text>',
           f'<text x="{LEFT}" y="46" fill="#555">held-out loss above {escape(baseline)}, same seed, nats per token</text>']
    for mark in marks:
        colour = "#888" if abs(mark) < 1e-12 else "#e4e4e4"
        svg.append(f'<line x1="{LEFT}" x2="{width - RIGHT}" y1="{y(mark):.1f}" y2="{y(mark):.1f}" stroke="{colour}"/>'
                   f'<text x="{LEFT - 8}" y="{y(mark) + 4:.1f}" text-anchor="end" fill="#555">{mark:.6g}</text>')
    seeds = sorted({seed for by_seed in costs.values() for seed in by_seed})
    for column, (variant, by_seed) in enumerate(costs.items()):
        middle = LEFT + COLUMN * (column + 0.5)
        mean = statistics.fmean(by_seed.values())
        svg.append(f'<line x1="{middle - 40:.1f}" x2="{middle + 40:.1f}" y1="{y(mean):.1f}" y2="{y(mean):.1f}" '
                   f'stroke="#333" stroke-width="2"/><text x="{middle:.1f}" y="{bottom + 20}" text-anchor="middle">'
                   f'{escape(variant)}</text><text x="{middle + 46:.1f}" y="{y(mean) + 4:.1f}">{mean:+.4f}</text>')
        for seed, cost in by_seed.items():
            place = seeds.index(seed)
            at = middle + 22 * (place - (len(seeds) - 1) / 2)
            svg.append(f'<circle cx="{at:.1f}" cy="{y(cost):.1f}" r="5" fill="{SEED_COLOURS[place % len(SEED_COLOURS)]}">'
                       f'<title>seed {seed}: {cost:+.4f}</title></circle>')
    for place, seed in enumerate(seeds):
        at = LEFT + 80 * place
        svg.append(f'<circle cx="{at + 6}" cy="{bottom + 44}" r="5" fill="{SEED_COLOURS[place % len(SEED_COLOURS)]}"/>'
                   f'<text x="{at + 16}" y="{bottom + 48}">seed {seed}</text>')
    return "\n".join(svg + ["</svg>"]) + "\n"
