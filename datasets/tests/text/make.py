"""Writes detections.json: the boxes and polygons that DB's method finds in drawn probability maps with OpenCV and pyclipper.

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

RNG = np.random.default_rng(11)
WIDTH, HEIGHT = 96, 64
TO_WIDTH, TO_HEIGHT = 200, 150
THRESHOLD, MIN_SCORE, MIN_SIDE = 0.3, 0.5, 3


def draw_map():
    """Blurred words, straight or bent, some faint, and noise; 0 to 255."""
    canvas = np.zeros((HEIGHT, WIDTH), np.float64)
    for _ in range(RNG.integers(2, 5)):
        word = np.zeros_like(canvas)
        centre = RNG.uniform((15, 10), (WIDTH - 15, HEIGHT - 10))
        if RNG.random() < 0.6:
            box = (tuple(centre), tuple(RNG.uniform((14, 4), (40, 12))), RNG.uniform(-40, 40))
            cv2.fillPoly(word, [cv2.boxPoints(box).astype(np.int32)], 1.0)
        else:
            axes = tuple(int(v) for v in RNG.uniform(12, 24, 2))
            start = int(RNG.uniform(0, 360))
            cv2.ellipse(word, tuple(int(v) for v in centre), axes, 0, start, start + 110, 1.0, 7)
        canvas = np.maximum(canvas, word * RNG.uniform(0.5, 1))
    canvas = cv2.GaussianBlur(canvas, (0, 0), 0.8) + RNG.normal(0, 0.02, canvas.shape)
    return np.clip(canvas * 255, 0, 255).round().astype(np.uint8)


def ordered_box(points):
    rectangle = cv2.minAreaRect(points.astype(np.float32))
    corners = sorted(cv2.boxPoints(rectangle).tolist(), key=lambda p: p[0])
    left, right = sorted(corners[:2], key=lambda p: p[1]), sorted(corners[2:], key=lambda p: p[1])
    return np.array([left[0], right[0], right[1], left[1]]), min(rectangle[1])


def mean_inside(probability, points):
    low, high = np.floor(points.min(0)).astype(int), np.ceil(points.max(0)).astype(int)
    low, high = np.clip(low, 0, (WIDTH - 1, HEIGHT - 1)), np.clip(high, 0, (WIDTH - 1, HEIGHT - 1))
    part = probability[low[1]:high[1] + 1, low[0]:high[0] + 1]
    mask = np.zeros(part.shape, np.uint8)
    cv2.fillPoly(mask, [(points - low).astype(np.int32)], 1)
    return float(cv2.mean(part, mask)[0])


def grow(points, ratio):
    polygon = shapely.Polygon(points)
    offset = pyclipper.PyclipperOffset()
    offset.AddPath([tuple(p) for p in points], pyclipper.JT_ROUND, pyclipper.ET_CLOSEDPOLYGON)
    return [np.array(path, float) for path in offset.Execute(polygon.area * ratio / polygon.length)]


def to_image(points):
    scaled = points / (WIDTH, HEIGHT) * (TO_WIDTH, TO_HEIGHT)
    return np.clip(np.round(scaled), 0, (TO_WIDTH, TO_HEIGHT)).tolist()


def boxes(probability, contours):
    found = []
    for contour in contours:
        small, side = ordered_box(contour.reshape(-1, 2))
        if side < MIN_SIDE or (score := mean_inside(probability, small)) < MIN_SCORE:
            continue
        box, side = ordered_box(np.concatenate(grow(small, 1.5)))
        if side >= MIN_SIDE + 2:
            found.append({"points": to_image(box), "score": score})
    return found


def polygons(probability, contours):
    found = []
    for contour in contours:
        points = cv2.approxPolyDP(contour, 0.01 * cv2.arcLength(contour, True), True).reshape(-1, 2)
        if len(points) < 4 or (score := mean_inside(probability, points)) < MIN_SCORE:
            continue
        grown = grow(points, 2.0)
        if len(grown) != 1 or ordered_box(grown[0])[1] < MIN_SIDE + 2:
            continue
        found.append({"points": to_image(grown[0]), "score": score})
    return found


def main():
    cases = []
    for _ in range(12):
        levels = draw_map()
        probability = (levels / 255).astype(np.float32)
        bitmap = (probability > THRESHOLD).astype(np.uint8)
        contours, _ = cv2.findContours(bitmap, cv2.RETR_LIST, cv2.CHAIN_APPROX_SIMPLE)
        cases.append({
            "levels": levels.tobytes().hex(),
            "boxes": boxes(probability, contours),
            "polygons": polygons(probability, contours),
        })
    Path(__file__).with_name("detections.json").write_text(json.dumps(cases, separators=(",", ":")) + "\n")


main()
