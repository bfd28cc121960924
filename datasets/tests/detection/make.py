"""python make.py: writes cases.json, what torchvision computes for detection: anchors, targets, detections, inputs."""

import json
from pathlib import Path

import torch
import torchvision
from torchvision.models.detection import _utils, retinanet
from torchvision.models.detection.image_list import ImageList
from torchvision.models.detection.transform import GeneralizedRCNNTransform

WIDTH, HEIGHT, CLASSES = 64, 48, 5
STRIDES = (8, 16, 32, 64, 128)


def numbers(tensor, digits=9):
    return [float(f"{value:.{digits}g}") for value in tensor.flatten().tolist()]


def main():
    torch.manual_seed(1)
    grids = [(-(-HEIGHT // stride), -(-WIDTH // stride)) for stride in STRIDES]
    features = [torch.zeros(1, 1, *grid) for grid in grids]
    images = ImageList(torch.zeros(1, 3, HEIGHT, WIDTH), [(HEIGHT, WIDTH)])
    anchors = retinanet._default_anchorgen()(images, features)[0]
    levels = [9 * rows * columns for rows, columns in grids]
    cases = {"size": [WIDTH, HEIGHT], "anchors": numbers(anchors), "matches": [], "detections": [], "inputs": []}

    matcher = _utils.Matcher(0.5, 0.4, allow_low_quality_matches=True)
    coder = _utils.BoxCoder(weights=(1.0, 1.0, 1.0, 1.0))
    for case in range(4):
        corners = torch.rand(3 + 2 * case, 2, 2) * torch.tensor([WIDTH, HEIGHT])
        boxes = torch.cat([corners.amin(1), corners.amax(1) + 4], 1)
        if case == 0:  # many anchors overlap these equally
            boxes = torch.tensor([[20.0, 20.0, 28.0, 28.0], [0.0, 0.0, 64.0, 48.0], [16.0, 8.0, 48.0, 40.0]])
        labels = torch.arange(len(boxes)) % CLASSES
        match = matcher(torchvision.ops.box_iou(boxes, anchors))
        found = match >= 0
        encoded = coder.encode_single(boxes[match.clamp(min=0)], anchors)
        cases["matches"].append(
            {
                "boxes": numbers(boxes),
                "labels": labels.tolist(),
                "found": torch.where(found, labels[match.clamp(min=0)], match).tolist(),
                "offsets": numbers(encoded[found]),
            }
        )

    for candidates, most, shown in ((1000, 300, (HEIGHT, WIDTH)), (60, 40, (40, 56))):
        # All different: torch does not say which of equal scores comes first.
        logits = torch.linspace(-9, 2, len(anchors) * CLASSES)[torch.randperm(len(anchors) * CLASSES)]
        logits = torch.tensor(numbers(logits, 6)).reshape(1, -1, CLASSES)
        offsets = torch.tensor(numbers(torch.randn(len(anchors), 4) * 0.4, 4)).reshape(1, -1, 4)
        detector = retinanet.RetinaNet.__new__(retinanet.RetinaNet)
        torch.nn.Module.__init__(detector)
        detector.score_thresh, detector.nms_thresh, detector.box_coder = 0.05, 0.5, coder
        detector.topk_candidates, detector.detections_per_img = candidates, most
        outputs = {"cls_logits": list(logits.split(levels, 1)), "bbox_regression": list(offsets.split(levels, 1))}
        (found,) = detector.postprocess_detections(outputs, [list(anchors.split(levels))], [shown])
        cases["detections"].append(
            {
                "candidates": candidates,
                "most": most,
                "shown": [shown[1], shown[0]],
                "logits": numbers(logits, 6),
                "offsets": numbers(offsets, 4),
                "boxes": numbers(found["boxes"]),
                "scores": numbers(found["scores"]),
                "labels": found["labels"].tolist(),
            }
        )

    mean, std = [0.485, 0.456, 0.406], [0.229, 0.224, 0.225]
    for height, width in ((13, 21), (29, 17), (47, 51)):
        transform = GeneralizedRCNNTransform(24, 32, mean, std)
        pixels = torch.randint(0, 256, (3, height, width), dtype=torch.uint8)
        boxes = torch.tensor([[1.0, 2.0, 7.5, 9.25]])
        result, targets = transform([pixels.float() / 255], [{"boxes": boxes, "labels": torch.tensor([1])}])
        cases["inputs"].append(
            {
                "size": [width, height],
                "pixels": pixels.permute(1, 2, 0).flatten().tolist(),
                "shown": [result.image_sizes[0][1], result.image_sizes[0][0]],
                "network": numbers(result.tensors, 7),
                "boxes": numbers(boxes),
                "corners": numbers(targets[0]["boxes"]),
            }
        )

    # Sizes of photographs under the settings of torchvision's detectors.
    transform = GeneralizedRCNNTransform(800, 1333, mean, std)
    sizes = torch.randint(100, 1400, (60, 2)).tolist() + [[480, 640], [640, 480], [426, 640], [500, 375], [333, 500]]
    cases["sizes"] = []
    for width, height in sizes:
        image, _ = transform.resize(torch.zeros(1, height, width), None)
        cases["sizes"].append([width, height, image.shape[2], image.shape[1]])
    (Path(__file__).parent / "cases.json").write_text(json.dumps(cases, separators=(",", ":")) + "\n")


main()
