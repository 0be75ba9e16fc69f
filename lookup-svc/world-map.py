#!/usr/bin/env python3
"""Writes data/world-map.svg: the land areas of the map on the home page.

Run by hand: world-map.py WORLD_ATLAS
  WORLD_ATLAS  unpacked npm package world-atlas; its land-110m.json has the land areas of Natural Earth (public domain)

The projection is equirectangular, two units per degree: a point is at x = 2 * (longitude + 180),
y = 2 * (90 - latitude), which src/pages/home/map.rs repeats for the dot. The map ends at 60 degrees south.
"""

import json
import pathlib
import sys

UNITS = 2
WIDTH = 360 * UNITS
SOUTH = -60
# In square units. Smaller islands would be invisible.
MIN_AREA = 0.5

HEAD = (
    '<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 720 300" fill="#8a93a8" fill-opacity=".42">'
    "<!-- Made by world-map.py from Natural Earth, public domain -->"
)


def polygons(topology):
    """The polygons in degrees, each a list of rings: its border, and its lakes. Arcs are stored once, quantized and
    delta-encoded."""
    scale, translate = topology["transform"]["scale"], topology["transform"]["translate"]
    arcs = []
    for arc in topology["arcs"]:
        x, y, points = 0, 0, []
        for dx, dy in arc:
            x, y = x + dx, y + dy
            points.append((x * scale[0] + translate[0], y * scale[1] + translate[1]))
        arcs.append(points)

    def ring(indexes):
        points = []
        for index in indexes:
            # A negative number is the complement of an index: the arc is used in the other direction.
            arc = arcs[index] if index >= 0 else arcs[~index][::-1]
            points += arc[1:] if points else arc
        return points

    for geometry in topology["objects"]["land"]["geometries"]:
        for polygon in geometry["arcs"] if geometry["type"] == "MultiPolygon" else [geometry["arcs"]]:
            yield [ring(indexes) for indexes in polygon]


def unwrap(points):
    """The ring without a jump from one edge of the map to the other: if it crosses 180 degrees, it continues beyond."""
    unwrapped, turn = [points[0]], 0
    for (before, _), (longitude, latitude) in zip(points, points[1:]):
        turn += 360 * ((longitude - before < -180) - (longitude - before > 180))
        unwrapped.append((longitude + turn, latitude))
    shift = 360 if min(longitude for longitude, _ in unwrapped) < -180 else 0
    return [(longitude + shift, latitude) for longitude, latitude in unwrapped]


def project(points):
    """Rounded points of the map, without repeated ones. The first and the last one are the same."""
    projected = []
    for longitude, latitude in points:
        point = (round(UNITS * (longitude + 180), 1), round(UNITS * (90 - latitude), 1))
        if not projected or point != projected[-1]:
            projected.append(point)
    return projected


def area(points):
    pairs = zip(points, points[1:] + points[:1])
    return abs(sum(x1 * y2 - x2 * y1 for (x1, y1), (x2, y2) in pairs)) / 2


def number(value):
    text = f"{value:.1f}".removesuffix(".0")
    return text.replace("0.", ".", 1) if text.startswith(("0.", "-0.")) else text


def path(points):
    """Relative line segments, in as few characters as SVG allows."""
    x, y = points[0]
    text = f"M{number(x)} {number(y)}l"
    numbers = []
    for next_x, next_y in points[1:-1]:
        numbers += [number(next_x - x), number(next_y - y)]
        x, y = next_x, next_y
    joined = numbers[0]
    for previous, current in zip(numbers, numbers[1:]):
        # A sign, or the dot of a second fraction, separates numbers.
        separated = current.startswith("-") or (current.startswith(".") and "." in previous)
        joined += current if separated else " " + current
    return text + joined + "z"


def main():
    atlas = pathlib.Path(sys.argv[1]) if len(sys.argv) == 2 else sys.exit(__doc__)
    topology = json.loads((atlas / "land-110m.json").read_text())
    inside, crossing = "", ""
    for polygon in polygons(topology):
        border, *lakes = [project(unwrap(ring)) for ring in polygon]
        if max(latitude for _, latitude in polygon[0]) < SOUTH or area(border) < MIN_AREA:
            continue
        text = "".join(path(ring) for ring in [border, *lakes])
        if max(x for x, _ in border) > WIDTH:
            crossing += text
        else:
            inside += text
    out = pathlib.Path(__file__).parent / "data" / "world-map.svg"
    # The areas that cross 180 degrees are drawn a second time, at the other edge. The viewBox cuts off the rest.
    out.write_text(
        f'{HEAD}<path d="{inside}"/><path id="a" d="{crossing}"/><use href="#a" x="-{WIDTH}"/></svg>\n'
    )
    print(f"{out.name}: {out.stat().st_size} bytes")


if __name__ == "__main__":
    main()
