//! The options of the command line.

use super::program::Program;
use super::{record, shard};
use crate::python::Code;
use crate::schema::{Precision, SampleKind, Source};

/// The function that reads the options.
pub(super) fn options(program: &Program<'_>) -> String {
    let recipe = program.recipe;
    let mut source = recipe.data.source.clone();
    let data = source.location_mut().filter(|_| !program.prepared).map(|path| path.display().to_string());
    let data = data.unwrap_or_else(|| "data".to_owned());
    let workers = match recipe.data.source.kind() {
        SampleKind::Language => "0",
        SampleKind::Image | SampleKind::Text | SampleKind::LabelMap | SampleKind::Boxes | SampleKind::Video => {
            "min(os.cpu_count() or 1, 16)"
        }
    };
    let workers = if program.prepared { "0" } else { workers };
    let precision = match recipe.npu.precision {
        Precision::AllowMixPrecision | Precision::AllowFp32ToFp16 | Precision::ForceFp16 => "fp16",
        Precision::MustKeepOriginDtype | Precision::Fp32 => "fp32",
        Precision::Bf16 => "bf16",
    };
    let what = match recipe.data.source {
        Source::TextFile(_) => "a text, or a folder of texts",
        _ => "the folder of the data",
    };
    let what = if program.prepared { "what `zoo data make` wrote" } else { what };
    let text = |text: String| Code::text(text);
    let option = |name: &str, arguments: Vec<Code>| {
        let name = std::iter::once(Code::text(format!("\"--{name}\"")));
        Code::call("parser.add_argument", name.chain(arguments).collect())
    };
    let help = |help: &str| text(format!("help=\"{help}\""));
    let path = || text("type=Path".into());
    let whole = |default: String| vec![text("type=int".into()), text(format!("default={default}"))];
    let out = format!("default=Path(\"runs/{}\")", recipe.name);
    let mut options = vec![
        option("data", vec![path(), text(format!("default=Path(\"{data}\")")), help(what)]),
        option("out", vec![path(), text(out), help("folder for checkpoint.pt and log.jsonl")]),
        Code::text("parser.add_argument(\"--device\", choices=[\"cpu\", \"cuda\", \"npu\"], default=\"cpu\")"),
        option(
            "precision",
            vec![
                text("choices=list(PRECISIONS)".into()),
                help(&format!("by default {precision} on an NPU, otherwise fp32")),
            ],
        ),
        option("seed", whole(recipe.train.seed.to_string())),
        option("epochs", whole("EPOCHS".into())),
        option("steps", vec![text("type=int".into()), help("stop after this step, without an evaluation")]),
        option("workers", [whole(workers.to_owned()), vec![help("processes that read the data")]].concat()),
        option("weights", vec![path(), help("a state_dict (torch.save) to start from")]),
        option("resume", vec![text("action=\"store_true\"".into()), help("go on from the checkpoint in --out")]),
        option("profile", vec![path(), help("folder for a profile of three steps, after which it ends")]),
    ];
    if shard::possible(program) {
        let divided = help("divide the network among the processes (FSDP2), which otherwise have copies (DDP)");
        options.push(option("shard", vec![text("action=\"store_true\"".into()), divided]));
    }
    if record::possible(program) {
        options.extend([
            option("record", vec![path(), help("folder for steps on --inputs, for `zoo judge`")]),
            option("inputs", vec![path(), help("inputs of recorded steps (torch.save)")]),
            option("rate", vec![text("type=float".into()), help("learning rate of recorded steps")]),
        ]);
    }
    let mut lines = vec![
        "def arguments() -> argparse.Namespace:".to_owned(),
        "    \"\"\"The options of the command line.\"\"\"".to_owned(),
        format!("    parser = argparse.ArgumentParser(description=\"Trains {}.\")", recipe.name),
    ];
    options.iter().for_each(|option| option.lines(4, "", "", &mut lines));
    lines.push("    options = parser.parse_args()".to_owned());
    let default = format!("(\"{precision}\" if options.device == \"npu\" else \"fp32\")");
    lines.push(match precision {
        "fp32" => "    options.precision = options.precision or \"fp32\"".to_owned(),
        _ => format!("    options.precision = options.precision or {default}"),
    });
    if shard::possible(program) {
        lines.push("    if options.shard and options.precision == \"fp16\":".to_owned());
        lines.push("        parser.error(\"--shard needs --precision fp32 or bf16\")".to_owned());
    }
    expect_files(program, "checkpoint.pt", record::possible(program), &mut lines);
    lines.push("    return options".to_owned());
    lines.join("\n")
}

/// Files and folders that must be there are named if they are not.
pub(in crate::emit) fn expect_files(program: &Program<'_>, checkpoint: &str, records: bool, lines: &mut Vec<String>) {
    let data = if program.prepared { "options.data / \"data.json\"" } else { "options.data" };
    let data = if records { format!("options.inputs if options.record else {data}") } else { data.to_owned() };
    if records {
        lines.push("    if options.record and not options.inputs:".to_owned());
        lines.push("        parser.error(\"--record needs --inputs\")".to_owned());
    }
    lines.push(format!("    resumed = options.out / \"{checkpoint}\" if options.resume else None"));
    lines.push(format!("    for path in ({data}, options.weights, resumed):"));
    lines.push("        if path and not path.exists():".to_owned());
    lines.push("            parser.error(f\"{path} is not there\")".to_owned());
}
