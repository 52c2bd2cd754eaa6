"""drawing - the pictures of run-load: plots of CSV files as SVG, with nothing but the standard library.

A plot is a list of panels; a panel is a list of lines over one time axis, with phases in the
background. Colours are those of Okabe and Ito, which people tell apart who see colours differently.
"""
import csv
import math
import os

BLUE, ORANGE, GREEN, RED, GREY, BLACK = "#0072B2", "#E69F00", "#009E73", "#D55E00", "#8a8a8a", "#222222"
FONT = "DejaVu Sans, Helvetica, Arial, sans-serif"
PHASES = {"calm": "#ffffff", "1x": "#f1f5f9", "5x": "#fdecd2", "relief": "#ffffff", "outage": "#f9dcd5",
          "recovery": "#e3f3ea"}
LABELS = {"1x": "1×", "5x": "5× overload"}
BUDGET_MS = 500
QUEUE_MAX = 24
SAMPLED = ("parse", "fetch", "rank", "enrich", "queued", "breaker", "resident_mb", "upstream_calls")


def number(value):
    """Short, for an axis: 1500 is 1.5k."""
    if value >= 1000:
        return f"{value / 1000:g}k"
    return f"{value:g}"


def read(path):
    """Columns by name, and the phases as (name, from, to)."""
    with open(path, encoding="utf-8") as file:
        rows = [row for row in csv.DictReader(file) if row["phase"]]
    columns = {name: [row[name] if name == "phase" else float(row[name]) for row in rows]
               for name in rows[0]}
    step = columns["t_s"][1] - columns["t_s"][0]
    phases = []
    for name, t in zip(columns["phase"], columns["t_s"]):
        if not phases or phases[-1][0] != name:
            phases.append([name, t - step, t])
        phases[-1][2] = t
    for name in SAMPLED:  # what the service did not say in time is not known
        columns[name] = [value if sampled else None for value, sampled in
                         zip(columns[name], columns["sampled"])]
    columns["rejected"] = [a + b for a, b in zip(columns["overload"], columns["shed"])]
    columns["failed"] = [sum(parts) for parts in zip(*(columns[name] for name in
                         ("unavailable", "upstream", "timeout", "internal")))]
    return columns, phases


class Line:
    def __init__(self, column, label, colour, width=1.8, step=False, skip_zero=False, dash=None):
        self.column, self.label, self.colour, self.width = column, label, colour, width
        self.step, self.skip_zero, self.dash = step, skip_zero, dash


class Panel:
    def __init__(self, title, lines, top, height=130, log=False, bottom=0.0, ticks=None, marks=()):
        self.title, self.lines, self.top, self.height = title, lines, top, height
        self.log, self.bottom, self.ticks, self.marks = log, bottom, ticks, marks

    def y(self, value, origin):
        if self.log:
            low, high = math.log10(self.bottom), math.log10(self.top)
            part = (math.log10(max(value, self.bottom)) - low) / (high - low)
        else:
            part = (value - self.bottom) / (self.top - self.bottom)
        return origin + self.height - min(max(part, 0), 1.0) * self.height

    def tick_values(self):
        if self.ticks:
            return self.ticks
        if self.log:
            return [(10 ** e, number(10 ** e)) for e in range(int(math.log10(self.bottom)),
                                                              int(math.log10(self.top)) + 1)]
        step = nice(self.top / 4)
        return [(i * step, number(i * step)) for i in range(int(self.top / step + 1e-9) + 1)]


def nice(value):
    scale = 10 ** math.floor(math.log10(value))
    return next(scale * factor for factor in (1, 2, 2.5, 5, 10) if scale * factor >= value * 0.999)


def rounded_up(value):
    return nice(value / 4) * math.ceil(value / nice(value / 4) - 1e-9)


class Svg:
    def __init__(self, width, height):
        self.width, self.height, self.parts = width, height, []

    def rect(self, x, y, width, height, fill, stroke="none"):
        self.parts.append(f'<rect x="{x:.1f}" y="{y:.1f}" width="{width:.1f}" height="{height:.1f}" '
                          f'fill="{fill}" stroke="{stroke}"/>')

    def line(self, x1, y1, x2, y2, colour, width=1.0, dash=None):
        extra = f' stroke-dasharray="{dash}"' if dash else ""
        self.parts.append(f'<line x1="{x1:.1f}" y1="{y1:.1f}" x2="{x2:.1f}" y2="{y2:.1f}" '
                          f'stroke="{colour}" stroke-width="{width}"{extra}/>')

    def path(self, points, colour, width, dash=None):
        if len(points) < 2:
            return
        text = "M" + "L".join(f"{x:.1f} {y:.1f}" for x, y in points)
        extra = f' stroke-dasharray="{dash}"' if dash else ""
        self.parts.append(f'<path d="{text}" fill="none" stroke="{colour}" stroke-width="{width}" '
                          f'stroke-linejoin="round"{extra}/>')

    def text(self, x, y, text, size=12, anchor="start", colour=BLACK, weight="normal"):
        text = text.replace("&", "&amp;").replace("<", "&lt;")
        self.parts.append(f'<text x="{x:.1f}" y="{y:.1f}" font-size="{size}" text-anchor="{anchor}" '
                          f'fill="{colour}" font-weight="{weight}">{text}</text>')

    def write(self, path):
        head = (f'<svg xmlns="http://www.w3.org/2000/svg" width="{self.width}" height="{self.height}" '
                f'viewBox="0 0 {self.width} {self.height}" font-family="{FONT}">\n')
        with open(path, "w", encoding="utf-8") as file:
            file.write(head + f'<rect width="{self.width}" height="{self.height}" fill="#ffffff"/>\n' +
                       "\n".join(self.parts) + "\n</svg>\n")


def draw_line(svg, panel, line, columns, x_of, origin):
    """A value that is not known is a gap, and so is a 0 that means "none"."""
    points = []
    for t, value in zip(columns["t_s"], columns[line.column]):
        if value is None or (line.skip_zero and value == 0):
            svg.path(points, line.colour, line.width, line.dash)
            points = []
            continue
        if line.step and points:
            points.append((x_of(t), points[-1][1]))
        points.append((x_of(t), panel.y(value, origin)))
    svg.path(points, line.colour, line.width, line.dash)


def draw_panel(svg, panel, columns, phases, x, origin, width, ticks=True, phase_names=False):
    end = phases[-1][2]

    def x_of(t):
        return x + width * t / end

    for name, begin, until in phases:
        svg.rect(x_of(begin), origin, x_of(until) - x_of(begin), panel.height, PHASES.get(name, "#ffffff"))
        if phase_names:
            svg.text((x_of(begin) + x_of(until)) / 2, origin - 8, LABELS.get(name, name), 12, "middle")
    for value, label in panel.tick_values():
        y = panel.y(value, origin)
        svg.line(x, y, x + width, y, "#d5d9de", 0.7)
        if ticks:
            svg.text(x - 6, y + 4, label, 11, "end")
    for value, label in panel.marks:
        y = panel.y(value, origin)
        svg.line(x, y, x + width, y, BLACK, 1.0, "5 3")
        if label:
            svg.text(x + 4, y - 4, label, 11)
    for line in panel.lines:
        draw_line(svg, panel, line, columns, x_of, origin)
    svg.rect(x, origin, width, panel.height, "none", "#9aa0a6")
    return x_of


def draw_time(svg, phases, x_of, y, step):
    t = 0
    while t <= phases[-1][2]:
        svg.text(x_of(t), y + 15, f"{t:g}", 11, "middle")
        t += step


def draw_legend(svg, panel, x, y):
    """Title and what the lines are, above the panel."""
    svg.text(x, y, panel.title, 12, weight="bold")
    x += 7.6 * len(panel.title) + 24
    for line in panel.lines:
        if not line.label:
            continue
        svg.line(x, y - 4, x + 18, y - 4, line.colour, 2.5, line.dash)
        svg.text(x + 23, y, line.label, 12)
        x += 23 + 7.1 * len(line.label) + 16


def most(columns, names, least=0.0):
    return max([least] + [value for name in names for value in columns[name] if value is not None])


def draw_service(path, columns, phases, capacity):
    panels = [
        Panel("requests per second", [
            Line("offered", "offered", GREY), Line("rejected", "turned away", ORANGE),
            Line("failed", "failed", RED), Line("goodput", "goodput: answered within 500 ms", GREEN, 2.4)],
            rounded_up(most(columns, ["offered"])), 170, marks=[(capacity, "")]),
        Panel("latency of accepted requests, ms", [
            Line("p50_ms", "P50", BLUE, skip_zero=True), Line("p99_ms", "P99", RED, skip_zero=True)],
            3000, 130, log=True, bottom=1, marks=[(BUDGET_MS, "budget 500 ms")]),
        Panel("requests that wait, by stage", [
            Line("parse", "to be let in", ORANGE), Line("fetch", "fetch", BLUE), Line("rank", "rank", GREEN)],
            30, 110, ticks=[(0, "0"), (8, "8"), (16, "16"), (24, "24")],
            marks=[(QUEUE_MAX, "bound of the first queue")]),
        Panel("breaker of the upstream", [Line("breaker", "", RED, 2.2, step=True)], 2.3, 70,
              bottom=-0.3, ticks=BREAKER),
        Panel("calls to the upstream per second", [Line("upstream_calls", "", BLUE)],
              rounded_up(max(most(columns, ["upstream_calls"]), capacity)), 90),
        Panel("resident memory, MB", [Line("resident_mb", "", BLUE, 2.2)],
              rounded_up(max(10.0, most(columns, ["resident_mb"]) * 1.2)), 80),
    ]
    left, right, gap, y = 72, 20, 44, 104
    width = 920
    svg = Svg(left + width + right, y + sum(p.height + gap for p in panels) + 8)
    svg.text(left, 26, "The search service from calm to overload, outage and recovery", 17, weight="bold")
    svg.text(left, 47, f"The dashed line is the peak that was measured before: {capacity} requests/s. "
             "In the outage the upstream answers nothing at all.", 12)
    for i, panel in enumerate(panels):
        draw_legend(svg, panel, left, y - (28 if i == 0 else 8))
        x_of = draw_panel(svg, panel, columns, phases, left, y, width, phase_names=i == 0)
        draw_time(svg, phases, x_of, y + panel.height, 5)
        y += panel.height + gap
    svg.text(left + width, y - gap + 30, "seconds", 11, "end")
    svg.write(path)


BREAKER = [(0, "closed"), (1, "half open"), (2, "open")]
NAMES = {"service": "the service", "unbounded-queue": "unbounded queue",
         "thread-per-request": "thread per request", "retry-without-budget": "retry without a budget"}


def draw_naive(path, runs, capacity):
    everything = {}
    for columns, _ in runs.values():
        for name, values in columns.items():
            if name != "phase":
                everything.setdefault(name, []).extend(value for value in values if value is not None)
    memory = 10 ** math.ceil(math.log10(max(everything["resident_mb"])))
    panels = [
        Panel("requests per second", [Line("offered", "offered", GREY),
                                      Line("goodput", "goodput: answered within 500 ms", GREEN, 2.4)],
              rounded_up(max(everything["offered"])), 150, marks=[(capacity, "")]),
        Panel("P99 of accepted requests, ms (the budget is dashed)", [Line("p99_ms", "", RED, skip_zero=True)],
              100000, 130, log=True, bottom=1, marks=[(BUDGET_MS, "")]),
        Panel("requests that wait, or threads", [Line("queued", "", ORANGE)], 100000, 110, log=True,
              bottom=1),
        Panel("calls to the upstream per second", [Line("upstream_calls", "", BLUE)],
              rounded_up(max(everything["upstream_calls"])), 110),
        Panel("resident memory, MB", [Line("resident_mb", "", BLUE, 2.2)], memory, 110, log=True, bottom=1),
    ]
    left, right, gap, between, y = 56, 16, 50, 14, 108
    width = 264
    svg = Svg(left + len(runs) * (width + between) - between + right,
              y + sum(panel.height + gap for panel in panels) - 6)
    svg.text(left, 26, "The same load against the service and three mistakes", 17, weight="bold")
    svg.text(left, 47, f"Phases: calm, 1×, 5× overload (orange), relief, upstream outage (red), recovery "
             f"(green). The dashed line above is the service's peak, {capacity} requests/s.", 12)
    for row, panel in enumerate(panels):
        draw_legend(svg, panel, left, y - (30 if row == 0 else 8))
        for i, (variant, (columns, phases)) in enumerate(runs.items()):
            x = left + i * (width + between)
            if row == 0:
                svg.text(x + width / 2, y - 8, NAMES[variant], 13, "middle", BLUE, "bold")
            x_of = draw_panel(svg, panel, columns, phases, x, y, width, ticks=i == 0)
            draw_time(svg, phases, x_of, y + panel.height, 20)
        y += panel.height + gap
    svg.text(svg.width - right, y - gap + 32, "seconds", 11, "end")
    svg.write(path)


def draw(folder, capacity):
    """Both pictures from the CSV files of a folder, as far as those are there. Returns their paths."""
    runs = {}
    for variant in NAMES:
        path = os.path.join(folder, variant + ".csv")
        if os.path.exists(path):
            runs[variant] = read(path)
    written = []
    if "service" in runs:
        written.append(os.path.join(folder, "search-service.svg"))
        draw_service(written[-1], *runs["service"], capacity)
    if len(runs) == len(NAMES):
        written.append(os.path.join(folder, "search-service-naive.svg"))
        draw_naive(written[-1], runs, capacity)
    return written
