#!/usr/bin/env python3
"""Draws balance_report's CSV as an SVG: plot_balance.py IN.csv OUT.svg

One panel per kind of load: the heaviest rank over the mean, by number of ranks. Needs
only Python's standard library.
"""

import csv
import sys

WIDTH, HEIGHT, LEFT, TOP, PLOT_W, PLOT_H = 960, 320, 60, 40, 250, 200
COLOURS = {"as read": "#999999", "lpt": "#d95f02", "refined": "#1b7837"}


def main(source, target):
    with open(source, newline="") as lines:
        rows = list(csv.DictReader(lines))
    kinds = list(dict.fromkeys(row["load"] for row in rows))
    ranks = sorted({int(row["ranks"]) for row in rows})
    out = [
        f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {WIDTH} {HEIGHT}"'
        ' font-family="sans-serif" font-size="12" fill="#333">',
        f'<rect width="{WIDTH}" height="{HEIGHT}" fill="#fff"/>',
    ]
    for panel, kind in enumerate(kinds):
        mine = [row for row in rows if row["load"] == kind]
        top = max(float(row["max_over_mean"]) for row in mine)
        x0 = LEFT + panel * (PLOT_W + 55)

        def place(rank, value):
            x = x0 + PLOT_W * ranks.index(rank) / (len(ranks) - 1)
            return x, TOP + PLOT_H * (1 - (value - 1) / (top - 1))

        out.append(f'<text x="{x0}" y="{TOP - 12}" font-weight="bold">{kind}</text>')
        out.append(
            f'<rect x="{x0}" y="{TOP}" width="{PLOT_W}" height="{PLOT_H}"'
            ' fill="none" stroke="#ccc"/>'
        )
        for tick in range(5):
            value = 1 + (top - 1) * tick / 4
            _, y = place(ranks[0], value)
            out.append(f'<text x="{x0 - 6}" y="{y + 4:.0f}" text-anchor="end">{value:.2f}</text>')
        for rank in ranks:
            x, _ = place(rank, 1)
            out.append(
                f'<text x="{x:.0f}" y="{TOP + PLOT_H + 18}" text-anchor="middle">{rank}</text>'
            )
        for algorithm, colour in COLOURS.items():
            points = [
                place(int(row["ranks"]), float(row["max_over_mean"]))
                for row in mine
                if row["algorithm"] == algorithm
            ]
            path = " ".join(f"{x:.1f},{y:.1f}" for x, y in points)
            out.append(
                f'<polyline points="{path}" fill="none" stroke="{colour}" stroke-width="2"/>'
            )
    for number, (algorithm, colour) in enumerate(COLOURS.items()):
        x = LEFT + 150 * number
        out.append(f'<rect x="{x}" y="{HEIGHT - 24}" width="14" height="4" fill="{colour}"/>')
        out.append(f'<text x="{x + 20}" y="{HEIGHT - 18}">{algorithm}</text>')
    out.append(
        f'<text x="{WIDTH - 12}" y="{HEIGHT - 18}" text-anchor="end">'
        "heaviest rank over the mean, by data-parallel ranks</text></svg>"
    )
    with open(target, "w") as svg:
        svg.write("\n".join(out) + "\n")


if __name__ == "__main__":
    if {"--help", "-h"} & set(sys.argv[1:]):
        print(__doc__, end="")
        sys.exit()
    if len(sys.argv) != 3:
        sys.exit(__doc__)
    main(sys.argv[1], sys.argv[2])
