"""python dense.py: writes schedule.json and init.json of db_resnet, db_resnet-original, siammask and siammask-sharp.

Learning rates of SiamMask are the tables that its authors' code gives (../schedules.json, twenty epochs); those of DB are its
authors' rule in closed form. Distributions are those of the authors' initialisation code. Needs no torch.
"""

import json
import math
from pathlib import Path

GOLDEN = Path(__file__).resolve().parent.parent


def normal(std):
    return {"kind": "normal", "mean": 0.0, "std": std, "absmax_bound": None}


def uniform(bound):
    return {"kind": "uniform", "mean": 0.0, "std": bound / math.sqrt(3), "absmax_bound": bound}


def constant(value):
    return {"kind": "constant", "mean": value, "std": 0.0, "absmax_bound": abs(value)}


def fan_in(shape):
    """torch's, which takes dimension 1 of a transposed convolution too."""
    return math.prod(shape[1:])


def fan_out(shape):
    return shape[0] * math.prod(shape[2:])


def db(name, shape, shapes):
    layer, leaf = name.rsplit(".", 1)
    weight = shapes[f"{layer}.weight"]
    if len(weight) == 1:
        return constant(1.0 if leaf == "weight" else 1e-4 if name.startswith("decoder.") else 0.0)
    if leaf == "bias" or layer == "backbone.fc":
        return uniform(1 / math.sqrt(fan_in(weight)))
    return normal(math.sqrt(2 / (fan_in(shape) if name.startswith("decoder.") else fan_out(shape))))


def siammask(name, shape, shapes):
    layer, leaf = name.rsplit(".", 1)
    weight = shapes[f"{layer}.weight"]
    if len(weight) == 1:
        return constant(1.0 if leaf == "weight" else 0.0)
    if leaf == "weight" and name.startswith("features.features."):
        return normal(math.sqrt(2 / fan_out(shape)))
    if leaf == "weight" and layer.startswith("refine_model.") and layer != "refine_model.deconv":
        return uniform(math.sqrt(3 / fan_in(shape)))  # kaiming_uniform_(a=1)
    return uniform(1 / math.sqrt(fan_in(weight)))


def write_init(recipe, golden, rule, source):
    step = json.loads((GOLDEN / golden / "step.json").read_text())
    shapes = step["shapes"]
    trained = [n for n in shapes if not n.endswith(("running_mean", "running_var", "num_batches_tracked"))]
    parameters = {name: rule(name, shapes[name], shapes) for name in trained}
    write(recipe, "init", {"recipe": recipe, "rule": source, "parameters": parameters})


def write_schedule(recipe, rule, source, images, batch, epochs, lr):
    per_epoch = images // batch
    borders = sorted({*range(0, epochs, max(1, epochs // 40)), 1, 2, epochs - 1})
    steps = {epoch * per_epoch + offset for epoch in borders for offset in (-1, 0, 1, per_epoch // 2)}
    values = {str(s): lr(s, per_epoch) for s in sorted(steps) if 0 <= s < epochs * per_epoch}
    table = {"recipe": recipe, "rule": rule, "source": source, "images": images, "batch": batch}
    write(recipe, "schedule", {**table, "steps_per_epoch": per_epoch, "epochs": epochs, "lr": values})


def write(recipe, kind, content):
    folder = GOLDEN / recipe
    folder.mkdir(exist_ok=True)
    (folder / f"{kind}.json").write_text(json.dumps(content, indent=1) + "\n")


def main():
    tables = json.loads((GOLDEN / "schedules.json").read_text())
    decoder = "backbone: convolutions normal, deviation sqrt(2/(k*k*out)); decoder: kaiming normal (fan_in), shifts 1e-4; the rest torch's defaults"
    for recipe in ("db_resnet", "db_resnet-original"):
        write_init(recipe, "db_resnet", db, decoder)
    heads = "backbone: convolutions normal, deviation sqrt(2/(k*k*out)); refinement: kaiming uniform with a = 1; the rest torch's defaults"
    write_init("siammask", "siammask", siammask, heads)
    write_init("siammask-sharp", "siammask-sharp", siammask, heads)
    write_schedule(
        "db_resnet",
        "0.007 * (1 - i/(1200 * steps_per_epoch))^0.9",
        "the Ascend port: 187200 steps on Total-Text",
        1255,
        8,
        1200,
        lambda s, per_epoch: 0.007 * (1 - s / (1200 * per_epoch)) ** 0.9,
    )
    write_schedule(
        "db_resnet-original",
        "0.007 * (1 - e/1201)^0.9 with e = floor(i/steps_per_epoch)",
        "the DB authors' DecayLearningRate",
        1000,
        16,
        1200,
        lambda s, per_epoch: 0.007 * (1 - s // per_epoch / 1201) ** 0.9,
    )
    for recipe, table in (("siammask", "siammask_base_20"), ("siammask-sharp", "siammask_sharp_20")):
        rates = tables[table]["lr"]
        write_schedule(
            recipe,
            f"{table} of ../schedules.json, one value per epoch",
            "the SiamMask authors' build_lr_scheduler",
            600000,
            64,
            len(rates),
            lambda s, per_epoch, rates=rates: rates[s // per_epoch],
        )


if __name__ == "__main__":
    main()
