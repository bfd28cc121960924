"""python steps.py [NAME...]: writes this repository's goldens (all, or those named) with zoo_golden.

The table is also the record of the conditions of each. A different torch or another number of threads moves f64 values
by some 1e-14 and the f32 floors by a few tens of percent.
"""

import sys
import warnings
from functools import partial
from pathlib import Path

import torch

from zoo_golden import airbench, bert, detection, language, qwen3, segmentation, text, tracking
from zoo_golden.goldens import main

GOLDEN = Path(__file__).resolve().parent.parent
FIXTURES = GOLDEN.parent / "tests" / "fixtures" / "golden"

# The last normalisation of a residual branch starts small, and smaller still in the last stage.
RESNET50_GAINS = "--gain layer?.*.bn3.*=0.1 --gain layer4.*.bn3.*=0.01 --gain layer4.0.downsample.1.*=0.1 --gain fc.weight=0.3"
RESNET18_GAINS = RESNET50_GAINS.replace("bn3", "bn2")
RESNET50 = f"--model torchvision:resnet50 --momentum 0.875 --weight-decay 3.0517578125e-05 --no-decay bn,bias --label-smoothing 0.1 {RESNET50_GAINS}"
NPU_ALEXNET = (
    "--model zoo_golden.networks:NpuAlexNet --name alexnet_npu --momentum 0.9 --nesterov --label-smoothing 0.1 --l2-in-loss 1e-4"
    " --gain *.weight=0.5 --gain fc3.weight=0.3"
)

# Networks of recipes that share blocks with those above, on smaller images: their f64 steps take seconds.
SGD = "--momentum 0.9 --weight-decay 1e-4"
SMALLER = {
    "resnet34": f"--model torchvision:resnet34 --lr 0.1 {SGD} {RESNET18_GAINS}",
    **{
        name: RESNET50.replace("torchvision:resnet50", f"torchvision:{name}") + " --lr 0.1"
        for name in ("resnet101", "resnet152", "resnext50_32x4d", "wide_resnet50_2")
    },
    "se_resnet50": RESNET50.replace("torchvision:resnet50", "timm:seresnet50") + " --lr 0.1",
    "vgg11_bn": f"--model torchvision:vgg11_bn --lr 0.01 {SGD} --gain classifier.*.weight=0.5",
    "vgg19": f"--model torchvision:vgg19 --lr 0.01 {SGD} --gain *.weight=0.7 --gain classifier.6.weight=0.3",
    "squeezenet1_0": f"--model torchvision:squeezenet1_0 --lr 0.01 {SGD} --gain *.weight=0.7",
    "squeezenet1_1": f"--model torchvision:squeezenet1_1 --lr 0.01 {SGD} --gain *.weight=0.7",
    "mobilenetv2": "--model torchvision:mobilenet_v2 --lr 0.05 --momentum 0.9 --weight-decay 4e-5"
    " --gain features.*.conv.3.*=0.1 --gain classifier.1.weight=0.3",
    "mobilenet_v3_large": "--model torchvision:mobilenet_v3_large --no-lifted --optimizer rmsprop --alpha 0.9 --eps 0.0316"
    " --momentum 0.9 --weight-decay 1e-5 --lr 0.01 --gain features.*.block.[23].1.*=0.1 --gain classifier.3.weight=0.3",
    "efficientnet_b0": "--model torchvision:efficientnet_b0 --no-lifted --optimizer rmsprop --alpha 0.9 --eps 0.0316"
    " --momentum 0.9 --weight-decay 1e-5 --no-decay bn,bias --label-smoothing 0.1 --lr 0.01"
    " --gain features.*.*.block.[23].1.*=0.1 --gain classifier.1.weight=0.3",
    "densenet121": f"--model torchvision:densenet121 --lr 0.01 {SGD} --no-lifted --gain classifier.weight=0.3",
    "googlenet": f"--model zoo_golden.networks:googlenet --no-lifted --lr 0.01 {SGD} --gain fc.weight=0.3",
    "inception_v3": f"--model zoo_golden.networks:inception_v3 --image-size 160 --lr 0.001 {SGD} --gain fc.weight=0.3",
    "convnext_tiny": "--model torchvision:convnext_tiny --image-size 64 --batch 2 --no-lifted --optimizer adamw --weight-decay 0.05"
    " --no-decay bn --label-smoothing 0.1 --lr 1e-3 --gain *.layer_scale=0.1 --gain classifier.2.weight=0.3",
    # The smallest image that needs everything: shifted windows, maps that are filled up, patches of odd maps.
    "swin_t": "--model torchvision:swin_t --image-size 56 --batch 2 --no-lifted --optimizer adamw --weight-decay 0.05"
    " --no-decay bn,bias,positions --clip-grad-norm 5 --label-smoothing 0.1 --lr 1e-3 --gain head.weight=0.3",
    "vit_b_16": "--model zoo_golden.networks:vit_b_16 --no-lifted --optimizer adamw --weight-decay 0.3 --clip-grad-norm 1"
    " --label-smoothing 0.11 --lr 1e-3 --gain heads.head.weight=0.3",
}

# Networks for images of 32 pixels.
SMALL = {
    "resnet20": f"--model zoo_golden.small:ResNet20 --name resnet20 --lr 0.1 {SGD} --gain layer?.*.bn2.*=0.1 --gain fc.weight=0.3",
    "resnet8_tiny": "--model zoo_golden.small:ResNet8 --name resnet8_tiny --optimizer adam --eps 1e-7 --lr 1e-3 --weight-decay 2e-4"
    " --no-decay bn,bias,dense --gain stack?.bn2.*=0.1 --gain dense.weight=0.3",
    "lenet": "--model zoo_golden.small:LeNet5 --name lenet --channels 1 --lr 0.01 --momentum 0.9",
}

GOLDENS = {
    "resnet50": (GOLDEN / "resnet50/step", f"{RESNET50} --lr 0.256"),
    "alexnet": (GOLDEN / "alexnet/step", f"{NPU_ALEXNET} --lr 0.06"),
    "alexnet-torchvision": (
        GOLDEN / "alexnet-torchvision/step",
        (
            "--model torchvision:alexnet --lr 0.06 --momentum 0.9 --weight-decay 1e-4 --no-decay bias --label-smoothing 0.1"
            " --gain *.weight=0.5 --gain classifier.6.weight=0.3"
        ),
    ),
    "resnet18": (
        GOLDEN / "resnet18/step",
        f"--model torchvision:resnet18 --lr 0.1 --momentum 0.9 --weight-decay 1e-4 {RESNET18_GAINS}",
    ),
    "vgg16": (
        GOLDEN / "vgg16/step",
        ("--model torchvision:vgg16 --batch 2 --lr 0.01 --momentum 0.9 --weight-decay 1e-4 --gain *.weight=0.7 --gain classifier.6.weight=0.3"),
    ),
    **{name: (GOLDEN / name / "step", f"--image-size 96 {conditions}") for name, conditions in SMALLER.items()},
    **{name: (GOLDEN / name / "step", f"--image-size 32 --classes 10 {conditions}") for name, conditions in SMALL.items()},
    # Eight images in place of 1024.
    "airbench94": (GOLDEN / "airbench94/step", partial(airbench.step, batch=8)),
    # Two windows in place of twelve.
    "gpt_shakespeare": (
        GOLDEN / "gpt_shakespeare/step",
        partial(language.step, batch=2, length=64, classes=65, lr=1e-3, betas=(0.9, 0.99), weight_decay=0.1, clip=1.0, gains=[]),
    ),
    # One window of 64 tokens in place of 12 of 1024.
    "gpt2": (
        GOLDEN / "gpt2/step",
        partial(
            language.step,
            network=language.gpt2,
            batch=1,
            length=64,
            classes=50257,
            lr=6e-4,
            betas=(0.9, 0.95),
            weight_decay=0.1,
            clip=1.0,
            gains=[],
            name="gpt2",
        ),
    ),
    # One window of 64 tokens in place of 128 of 512.
    "llama": (
        GOLDEN / "llama/step",
        partial(
            language.step,
            network=language.Llama,
            batch=2,
            length=64,
            classes=512,
            lr=1e-3,
            betas=(0.9, 0.99),
            weight_decay=0.01,
            clip=1.0,
            gains=[],
            name="llama",
        ),
    ),
    **{
        name: (
            GOLDEN / f"{name}/step",
            partial(
                language.step,
                network=network,
                loss=loss,
                batch=2,
                length=64,
                classes=512,
                lr=1e-3,
                betas=(0.9, 0.95),
                weight_decay=0.1,
                clip=1.0,
                gains=[],
                name=name,
            ),
        )
        for name, network, loss in (
            ("qwen3", qwen3.Qwen3, language.loss),
            ("qwen3_moe", qwen3.qwen3_moe, qwen3.balanced_loss),
        )
    },
    # Two samples of at most 64 tokens in place of 512 of 128.
    "bert_base": (
        GOLDEN / "bert_base/step",
        partial(
            bert.step,
            batch=2,
            length=64,
            lr=1e-3,
            weight_decay=0.01,
            clip=1.0,
            # With 1, all tokens become the same with depth, and no gradient reaches queries and keys.
            gains=[("*.dense.weight", 0.4), ("*.value.weight", 0.4)],
        ),
    ),
    # The smallest image that leaves a pixel on each level, and more than one of the result.
    "unet_medical": (
        GOLDEN / "unet_medical/step",
        partial(
            segmentation.step,
            network=segmentation.Unet,
            optimizer=partial(torch.optim.Adam, lr=1e-4, weight_decay=5e-4),
            batch=2,
            channels=1,
            size=188,
            predicted=4,
            classes=2,
            weight_decay=5e-4,
            gains=[],
            name="unet_medical",
            lifted=True,
        ),
    ),
    "deeplabv3_resnet50": (
        GOLDEN / "deeplabv3_resnet50/step",
        partial(
            segmentation.step,
            network=segmentation.deeplabv3_resnet50,
            optimizer=partial(torch.optim.SGD, lr=0.02, momentum=0.9, weight_decay=1e-4),
            batch=4,
            channels=3,
            size=64,
            predicted=64,
            classes=21,
            weight_decay=1e-4,
            gains=[("backbone.layer?.*.bn3.*", 0.1), ("backbone.layer4.*.bn3.*", 0.01), ("backbone.layer4.0.downsample.1.*", 0.1)],
            name="deeplabv3_resnet50",
            lifted=True,
        ),
    ),
    # Four levels of more than one place, and one of one.
    "retinanet_resnet50_fpn": (
        GOLDEN / "retinanet_resnet50_fpn/step",
        partial(
            detection.step,
            batch=2,
            size=96,
            classes=91,
            lr=0.01,
            momentum=0.9,
            weight_decay=1e-4,
            gains=[
                ("backbone.body.layer?.*.bn3.*", 0.1),
                ("backbone.body.layer4.*.bn3.*", 0.01),
                ("backbone.body.layer4.0.downsample.1.*", 0.1),
                ("backbone.fpn.*.weight", 0.5),
                ("head.*.cls_logits.weight", 0.1),
                ("head.*.bbox_reg.weight", 0.3),
            ],
        ),
    ),
    "fixture-resnet50": (
        FIXTURES / "resnet50-small",
        f"{RESNET50} --lr 0.1 --salt fixture: --batch 2 --classes 10 --image-size 64 --samples 16",
    ),
    "fixture-alexnet": (FIXTURES / "alexnet-salted", f"{NPU_ALEXNET} --lr 0.02 --salt fixture: --batch 3"),
    "fixture-db": (
        FIXTURES / "db-small",
        partial(text.step, batch=3, size=96, salt="fixture:", lr=0.002, momentum=0.9, weight_decay=1e-4, samples=16),
    ),
    "fixture-siammask": (
        FIXTURES / "siammask-small",
        partial(tracking.step, batch=1, search=175, salt="fixture:", lr=0.01, momentum=0.9, weight_decay=1e-4, clip=10.0, samples=16),
    ),
}


def make(name: str, path: Path | None = None) -> None:
    """Writes one golden, to `path` in place of its own."""
    place, conditions = GOLDENS[name]
    if isinstance(conditions, str):
        main([*conditions.split(), "--output", str(path or place)])
    else:
        torch.set_num_threads(2)
        warnings.filterwarnings("ignore", message="TF32 acceleration on top of oneDNN")  # from switching oneDNN off and on
        conditions(path or place)


if __name__ == "__main__":
    unknown = set(sys.argv[1:]) - GOLDENS.keys()
    if unknown:
        sys.exit(f"no golden named {', '.join(sorted(unknown))}; there are {', '.join(GOLDENS)}")
    for name in sys.argv[1:] or GOLDENS:
        make(name)
