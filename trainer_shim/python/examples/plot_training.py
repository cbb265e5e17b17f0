#!/usr/bin/env python3
"""Prints a Markdown table, and draws an SVG plot, of train_vlm.py's measurements.

plot_training.py out.json docs/training.svg
"""

import json
import sys

NAMES = {
    "slice": "(a) DataLoader, each rank reads all",
    "shards": "(b) DataLoader, disjoint shards",
    "off": "(b') Ballast, off: the same shards",
    "exchange": "(c) Ballast, exchange with overlap",
    "exchange_phases": "(c') the same, objective phases",
    "sync": "(d) Ballast, exchange without overlap",
    "direct": "(e) Ballast, direct",
    "direct_phases": "(e') the same, objective phases",
    "split": "(f) Ballast, direct, placement split",
    "apart": "(f') the same, modules apart",
    "bound": "(g) data on the GPU, perfectly balanced",
}
#: The quantiles of Megatron-Bridge #4608's table.
QUANTILES = (0.1, 0.25, 0.5, 0.75, 0.9, 0.99)
COLOURS = {
    "slice": "#999999", "shards": "#c08a3e", "off": "#8856a7", "sync": "#3182bd",
    "exchange": "#31a354", "direct": "#e6550d", "exchange_phases": "#74c476",
    "direct_phases": "#fd8d3c", "split": "#dd1c77", "apart": "#980043", "bound": "#000000",
}  # fmt: skip


def quantile(ordered, q):
    """Interpolates linearly between neighbours."""
    at = q * (len(ordered) - 1)
    low = int(at)
    high = min(low + 1, len(ordered) - 1)
    return ordered[low] + (at - low) * (ordered[high] - ordered[low])


def mean(values):
    return sum(values) / len(values)


def kept(mode, warmup):
    return mode["step_ms"][warmup:]


def ratio(times, modes, key, warmup):
    """Of the means, over the steps that both have; empty if the mode did not run."""
    if key not in modes:
        return ""
    other = kept(modes[key], warmup)
    steps = min(len(times), len(other))
    return "%.3f" % (mean(times[:steps]) / mean(other[:steps]))


def table(result):
    warmup, modes = result["warmup"], result["modes"]
    lines = [
        "| | steps | %s | mean | max | over (g) | over (b) | max/mean load |"
        % " | ".join("p%.0f" % (q * 100) for q in QUANTILES),
        "| ---" * (len(QUANTILES) + 7) + " |",
    ]
    for key, name in NAMES.items():
        if key not in modes:
            continue
        times = kept(modes[key], warmup)
        ordered = sorted(times)
        numbers = [quantile(ordered, q) for q in QUANTILES] + [mean(times), ordered[-1]]
        lines.append(
            "| %s | %d | %s | %s | %s | %.3f |"
            % (name, len(times), " | ".join("%.1f" % x for x in numbers),
               ratio(times, modes, "bound", warmup), ratio(times, modes, "shards", warmup),
               1.0 if key == "bound" else mean(modes[key]["imbalance"][warmup:]))
        )  # fmt: skip
    return "\n".join(lines)


def plot(result):
    """Plots the share of steps that took at most x milliseconds."""
    width, height, left, bottom, top = 820, 400, 60, 50, 20
    warmup = result["warmup"]
    series = {k: sorted(kept(m, warmup)) for k, m in result["modes"].items() if k in NAMES}
    low = min(times[0] for times in series.values()) * 0.95
    high = max(quantile(times, 0.9) for times in series.values()) * 1.02
    tail = 300  # width of the names

    def x(value):
        return left + (min(value, high) - low) / (high - low) * (width - left - tail)

    def y(share):
        return height - bottom - share * (height - bottom - top)

    out = [
        '<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 %d %d" font-family="sans-serif" '
        'font-size="12">' % (width, height),
        '<rect width="100%" height="100%" fill="white"/>',
    ]
    for share in (0, 0.25, 0.5, 0.75, 1):
        out.append(
            '<line x1="%d" x2="%d" y1="%.1f" y2="%.1f" stroke="#ddd"/>'
            '<text x="%d" y="%.1f" text-anchor="end">%d %%</text>'
            % (left, width - tail, y(share), y(share), left - 6, y(share) + 4, share * 100)
        )
    step = next(s for s in (5, 10, 20, 50, 100, 200, 500, 1000) if (high - low) / s <= 8)
    tick = (int(low / step) + 1) * step
    while tick < high:
        out.append('<text x="%.1f" y="%d" text-anchor="middle">%d</text>'
                   % (x(tick), height - bottom + 18, tick))  # fmt: skip
        tick += step
    out.append('<text x="%.1f" y="%d" text-anchor="middle">step, ms</text>'
               % ((left + width - tail) / 2, height - 10))  # fmt: skip
    row = top + 10
    for key in NAMES:
        if key not in series:
            continue
        times = series[key]
        points = " ".join(
            "%.1f,%.1f" % (x(t), y((i + 1) / len(times))) for i, t in enumerate(times) if t <= high
        )
        out.append('<polyline fill="none" stroke-width="1.6" stroke="%s" points="%s"/>'
                   % (COLOURS[key], points))  # fmt: skip
        out.append('<line x1="%d" x2="%d" y1="%d" y2="%d" stroke="%s" stroke-width="3"/>'
                   '<text x="%d" y="%d">%s</text>'
                   % (width - tail + 8, width - tail + 24, row - 4, row - 4, COLOURS[key],
                      width - tail + 28, row, NAMES[key]))  # fmt: skip
        row += 18
    out.append("</svg>\n")
    return "\n".join(out)


def main():
    with open(sys.argv[1], encoding="utf-8") as file:
        result = json.load(file)
    print(table(result))
    if len(sys.argv) > 2:
        with open(sys.argv[2], "w", encoding="utf-8") as file:
            file.write(plot(result))


if __name__ == "__main__":
    if {"--help", "-h"} & set(sys.argv[1:]):
        print(__doc__, end="")
        sys.exit()
    main()
