#!/usr/bin/env python3
"""Prints a Markdown table, and draws an SVG plot, of the losses that train.py wrote.

    plot_losses.py training.json training.svg

Standard library only.
"""

import json
import sys

COLOURS = ("#8856a7", "#e6550d", "#31a354", "#3182bd")
WIDTHS = (5, 3, 1.2, 1)  # equal curves are on top of each other
WIDTH, HEIGHT, LEFT, RIGHT, TOP, BOTTOM = 820, 400, 60, 120, 20, 50


def table(deliveries):
    lines = [
        "| delivery | steps | first loss | last loss | largest difference from the first row | seconds |",
        "| --- | --- | --- | --- | --- | --- |",
    ]
    for name, way in deliveries.items():
        lines.append(
            "| `%s` | %d | %.4f | %.4f | %.2g at step %d | %.0f |"
            % (name, len(way["loss"]), way["loss"][0], way["loss"][-1],
               way["worst_relative"], way["worst_step"], way["seconds"])
        )  # fmt: skip
    return "\n".join(lines)


def plot(deliveries):
    """Global loss over steps, a line for each way of delivery."""
    steps = max(len(way["loss"]) for way in deliveries.values())
    high = max(max(way["loss"]) for way in deliveries.values())

    def x(step):
        return LEFT + step / max(1, steps - 1) * (WIDTH - LEFT - RIGHT)

    def y(loss):
        return HEIGHT - BOTTOM - loss / high * (HEIGHT - BOTTOM - TOP)

    out = [
        '<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 %d %d" font-family="sans-serif" '
        'font-size="12">' % (WIDTH, HEIGHT),
        '<rect width="100%" height="100%" fill="white"/>',
    ]
    for tick in range(int(high) + 1):
        out.append(
            '<line x1="%d" x2="%d" y1="%.1f" y2="%.1f" stroke="#ddd"/>'
            '<text x="%d" y="%.1f" text-anchor="end">%d</text>'
            % (LEFT, WIDTH - RIGHT, y(tick), y(tick), LEFT - 6, y(tick) + 4, tick)
        )
    for tick in range(0, steps, max(1, steps // 8)):
        out.append('<text x="%.1f" y="%d" text-anchor="middle">%d</text>'
                   % (x(tick), HEIGHT - BOTTOM + 18, tick))  # fmt: skip
    out.append('<text x="%d" y="%d" text-anchor="middle">step (vertical: global loss)</text>'
               % ((LEFT + WIDTH - RIGHT) / 2, HEIGHT - 10))  # fmt: skip
    for number, (name, way) in enumerate(deliveries.items()):
        colour, width = COLOURS[number % 4], WIDTHS[number % 4]
        points = " ".join("%.1f,%.1f" % (x(i), y(loss)) for i, loss in enumerate(way["loss"]))
        out.append('<polyline fill="none" stroke-width="%g" stroke="%s" points="%s"/>'
                   % (width, colour, points))  # fmt: skip
        row = TOP + 10 + 18 * number
        out.append('<line x1="%d" x2="%d" y1="%d" y2="%d" stroke="%s" stroke-width="%g"/>'
                   '<text x="%d" y="%d">%s</text>'
                   % (WIDTH - RIGHT + 8, WIDTH - RIGHT + 24, row - 4, row - 4, colour, width,
                      WIDTH - RIGHT + 28, row, name))  # fmt: skip
    out.append("</svg>\n")
    return "\n".join(out)


def main():
    with open(sys.argv[1], encoding="utf-8") as file:
        deliveries = json.load(file)["deliveries"]
    print(table(deliveries))
    if len(sys.argv) > 2:
        with open(sys.argv[2], "w", encoding="utf-8") as file:
            file.write(plot(deliveries))


if __name__ == "__main__":
    if {"--help", "-h"} & set(sys.argv[1:]):
        print(__doc__, end="")
        sys.exit()
    main()
