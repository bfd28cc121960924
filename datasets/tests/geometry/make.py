"""Writes cases.json: the results of pyclipper, OpenCV and shapely for polygons and masks.

    pip install numpy opencv-python-headless pyclipper shapely
    python make.py
"""

import json
import math
from pathlib import Path

import cv2
import numpy as np
import pyclipper
import shapely

RNG = np.random.default_rng(4)
WIDTH, HEIGHT = 64, 48


def rows(bitmap):
    """One hexadecimal number per row, the leftmost pixel in the highest bit."""
    return [format(int("".join("1" if v else "0" for v in row), 2), "x") for row in bitmap]


def quad():
    centre = RNG.uniform((5, 5), (WIDTH - 5, HEIGHT - 5))
    size = RNG.uniform((8, 5), (40, 24)) / 2
    angle = RNG.uniform(-math.pi, math.pi)
    corners = np.array([(-1, -1), (1, -1), (1, 1), (-1, 1)]) * size + RNG.uniform(-2, 2, (4, 2))
    turn = np.array([(math.cos(angle), -math.sin(angle)), (math.sin(angle), math.cos(angle))])
    return corners @ turn.T + centre


def bent():
    """A curved word: points along the upper side, then back along the lower one."""
    n = int(RNG.integers(3, 8))
    radius, height = RNG.uniform(25, 60), RNG.uniform(8, 16)
    start, span = RNG.uniform(0, 2 * math.pi), RNG.uniform(0.5, 1.4)
    angles = np.linspace(start, start + span, n)
    unit = np.stack([np.cos(angles), np.sin(angles)], 1)
    points = np.concatenate([unit * (radius + height), unit[::-1] * radius])
    return points - points.mean(0) + (WIDTH / 2, HEIGHT / 2) + RNG.uniform(-6, 6, 2)


def offset_case(points):
    shape = shapely.Polygon(points)
    distance = shape.area * (1 - 0.4**2) / shape.length
    case = {"points": points.tolist(), "distance": distance}
    for name, sign in (("shrunk", -1), ("grown", 1)):
        offset = pyclipper.PyclipperOffset()
        offset.AddPath([tuple(p) for p in points], pyclipper.JT_ROUND, pyclipper.ET_CLOSEDPOLYGON)
        case[name] = [np.array(path).tolist() for path in offset.Execute(sign * distance)]
    return case


def fill_case(points):
    bitmap = np.zeros((HEIGHT, WIDTH), np.uint8)
    cv2.fillPoly(bitmap, [points.astype(np.int32)], 1)
    return {"points": points.astype(np.int32).tolist(), "rows": rows(bitmap)}


def contour_case():
    noise = cv2.GaussianBlur(RNG.normal(size=(HEIGHT, WIDTH)), (0, 0), RNG.uniform(0.6, 2.5))
    bitmap = (noise > RNG.uniform(-0.02, 0.1)).astype(np.uint8)
    found, _ = cv2.findContours(bitmap, cv2.RETR_LIST, cv2.CHAIN_APPROX_SIMPLE)
    contours = []
    for contour in found:
        rectangle = cv2.minAreaRect(contour)
        approximation = cv2.approxPolyDP(contour, 0.02 * cv2.arcLength(contour, True), True)
        contours.append({
            "points": contour.reshape(-1, 2).tolist(),
            "area": cv2.contourArea(contour),
            "sides": sorted(rectangle[1]),
            "approximation": approximation.reshape(-1, 2).tolist(),
        })
    return {"rows": rows(bitmap), "contours": contours}


def overlap_case(a, b):
    p, q = shapely.Polygon(a), shapely.Polygon(b)
    return {"a": a.tolist(), "b": b.tolist(), "common": p.intersection(q).area, "iou": p.intersection(q).area / p.union(q).area}


def simple_case():
    points = RNG.uniform(0, 40, (int(RNG.integers(3, 7)), 2)).round()
    return {"points": points.tolist(), "simple": bool(shapely.Polygon(points).is_valid) and shapely.Polygon(points).area > 0}


def main():
    shapes = [quad() for _ in range(25)] + [bent() for _ in range(25)]
    outside = [points + RNG.uniform(-30, 30, 2) for points in shapes[::2]]
    cases = {
        "size": [WIDTH, HEIGHT],
        "offset": [offset_case(points) for points in shapes],
        "fill": [fill_case(points) for points in shapes + outside],
        "contours": [contour_case() for _ in range(12)],
        "overlap": [overlap_case(a, b) for a, b in zip(shapes, shapes[1:])],
        "simple": [simple_case() for _ in range(60)],
    }
    Path(__file__).with_name("cases.json").write_text(json.dumps(cases, separators=(",", ":")) + "\n")


main()
