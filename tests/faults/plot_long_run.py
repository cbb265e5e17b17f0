#!/usr/bin/env python3
"""Draws the output of long_run.py as an SVG: plot_long_run.py RUN.json OUT.svg

Above: duration of Next (logarithmic; median and maximum of every hundred steps).
Below: memory of the ranks' process and of the servers. Lines mark where a server
was killed. Needs only Python's standard library.
"""

import json
import math
import statistics
import sys

WIDTH, HEIGHT, LEFT, PLOT_W, PLOT_H = 960, 460, 70, 860, 160
TOPS = (40, 250)
GROUP = 100


def label(x, y, text, anchor="end"):
    return f'<text x="{x:.0f}" y="{y:.0f}" text-anchor="{anchor}">{text}</text>'


def line(points, colour):
    path = " ".join(f"{x:.1f},{y:.1f}" for x, y in points)
    return f'<polyline points="{path}" fill="none" stroke="{colour}"/>'


def main(source, target):
    with open(source, encoding="utf-8") as file:
        run = json.load(file)
    steps = run["steps"]
    last = steps[-1]["step"]
    out = [
        f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {WIDTH} {HEIGHT}"'
        ' font-family="sans-serif" font-size="12" fill="#333">',
        f'<rect width="{WIDTH}" height="{HEIGHT}" fill="#fff"/>',
    ]

    def across(step):
        return LEFT + PLOT_W * step / last

    for top in TOPS:
        for seen in steps:
            if seen["kill"]:
                x = across(seen["step"])
                out.append(
                    f'<line x1="{x:.1f}" x2="{x:.1f}" y1="{top}"'
                    f' y2="{top + PLOT_H}" stroke="#eee"/>'
                )
        out.append(
            f'<rect x="{LEFT}" y="{top}" width="{PLOT_W}" height="{PLOT_H}"'
            ' fill="none" stroke="#ccc"/>'
        )

    low, high = -2, math.ceil(math.log10(max(s["next_ms"] for s in steps)))

    def up(value):
        exponent = max(math.log10(max(value, 1e-9)), low)
        return TOPS[0] + PLOT_H * (1 - (exponent - low) / (high - low))

    for exponent in range(low, high + 1):
        out.append(label(LEFT - 6, up(10**exponent) + 4, f"{10**exponent:g} ms"))
    for number, (name, choose, colour) in enumerate((
        ("median of 100 steps", statistics.median, "#1b7837"),
        ("longest of 100 steps", max, "#d95f02"),
    )):  # fmt: skip
        points = [
            (across(steps[i]["step"]),
             up(choose([s["next_ms"] for s in steps[i : i + GROUP]])))
            for i in range(0, len(steps), GROUP)
        ]  # fmt: skip
        out.append(line(points, colour))
        out.append(
            f'<text x="{LEFT + 170 * number}" y="{TOPS[0] - 12}" fill="{colour}">'
            f"Next, {name}</text>"
        )

    sampled = [s for s in steps if "rank" in s]
    series = [("ranks", [s["rank"]["mib"] for s in sampled], "#333")] + [
        (f"server {'ab'[i]}", [s["servers"][i]["mib"] for s in sampled], colour)
        for i, colour in enumerate(("#1f78b4", "#a6761d"))
    ]
    most = max(max(values) for _, values, _ in series) * 1.1
    for tick in range(5):
        value = most * tick / 4
        y = TOPS[1] + PLOT_H * (1 - tick / 4)
        out.append(label(LEFT - 6, y + 4, f"{value:.0f} MiB"))
    for number, (name, values, colour) in enumerate(series):
        points = [
            (across(s["step"]), TOPS[1] + PLOT_H * (1 - value / most))
            for s, value in zip(sampled, values)
        ]
        out.append(line(points, colour))
        out.append(
            f'<text x="{LEFT + 110 * number}" y="{TOPS[1] - 12}" fill="{colour}">{name}</text>'
        )
    for tick in range(5):
        step = last * tick / 4
        out.append(label(across(step), TOPS[1] + PLOT_H + 18, f"{step:.0f}", "middle"))
    killed = "; grey: a server is killed" if any(s["kill"] for s in steps) else ""
    out.append(label(LEFT + PLOT_W, HEIGHT - 12, "by step" + killed))
    out.append("</svg>")
    with open(target, "w", encoding="utf-8") as svg:
        svg.write("\n".join(out) + "\n")


if __name__ == "__main__":
    if {"--help", "-h"} & set(sys.argv[1:]):
        print(__doc__, end="")
        sys.exit()
    if len(sys.argv) != 3:
        sys.exit(__doc__)
    main(sys.argv[1], sys.argv[2])
