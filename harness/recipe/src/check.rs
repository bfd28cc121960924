//! Checks beyond the schema: values that contradict each other (errors), and unusual values (warnings), each with a
//! source for the usual value.

mod preprocess;

use crate::builder::LOGITS;
use crate::diagnostic::{Diagnostic, Severity, suggest, suggest_or};
use crate::lints::Lints;
use crate::losses::further_path;
use crate::optimizer::{UsualDecay, UsualRate};
use crate::schema::{
    BoxedShapes, Characters, DecayGroup, Goal, LossScale, Parallel, Per, Recipe, Shapes, Source, TextScenes, Videos,
    Warmup, WarmupShape,
};
use crate::span::ConfigPath;
use crate::values::Period;
use crate::{ResolvedLayer, ResolvedModel};
use zoo_graph::{
    Op,
    formula::{names, parse},
};

/// All that is wrong or unusual in a recipe that fits the schema.
///
/// Layers are checked if the architecture resolves.
pub(crate) fn check(recipe: &Recipe, model: Option<&ResolvedModel>) -> Vec<Diagnostic> {
    let mut check = Check { recipe, found: Vec::new() };
    check.name();
    check.data();
    check.preprocess();
    check.loss();
    check.optimizer();
    check.schedule();
    if let Some(model) = model {
        check.layers(model);
    }
    check.npu();
    for (key, message, hint) in recipe.parallel.iter().flat_map(Parallel::contradictions) {
        let path = if key.is_empty() { "parallel".to_owned() } else { format!("parallel.{key}") };
        check.error(&path, message, hint);
    }
    for (n, part) in recipe.train.parts.iter().enumerate() {
        if part.until_epoch.is_some_and(|until| until <= part.from_epoch) {
            let message =
                format!("the part leaves before it joins in epoch {}, so it is never trained", part.from_epoch);
            check.error(&format!("train.parts[{n}].until_epoch"), message, "write a later epoch, or `trained: false`");
        }
    }
    if recipe.train.ema_warmup && recipe.train.ema.is_none() {
        let message = "there is no average, so its warm-up has no effect";
        check.warn("train.ema_warmup", message, "set train.ema, for example 0.9999, or remove ema_warmup");
    }
    check.found
}

/// What names of recipes are made of.
pub const NAMES: &str = "lower-case letters, digits, `-` and `_`, beginning with a letter or digit";

/// Whether a recipe can have this name: see [`NAMES`].
pub fn is_name(name: &str) -> bool {
    let starts = name.starts_with(|c: char| c.is_ascii_lowercase() || c.is_ascii_digit());
    let rest = |c: char| c.is_ascii_lowercase() || c.is_ascii_digit() || matches!(c, '-' | '_');
    starts && name.chars().all(rest)
}

struct Check<'a> {
    recipe: &'a Recipe,
    found: Vec<Diagnostic>,
}

impl Check<'_> {
    fn report(&mut self, severity: Severity, path: &str, message: String, hint: &str) {
        let path = ConfigPath::from(path);
        let mut diagnostic = Diagnostic::error(self.recipe.span_of(&path), path, message).with_hint(hint);
        diagnostic.severity = severity;
        self.found.push(diagnostic);
    }

    fn error(&mut self, path: &str, message: impl Into<String>, hint: &str) {
        self.report(Severity::Error, path, message.into(), hint);
    }

    fn warn(&mut self, path: &str, message: impl Into<String>, hint: &str) {
        self.report(Severity::Warning, path, message.into(), hint);
    }

    /// A range `[low, high]` whose ends are finite, ordered and within `limits`.
    fn range(&mut self, path: &str, [low, high]: [f64; 2], limits: [f64; 2]) {
        if low > high {
            self.error(path, format!("the range [{low}, {high}] is empty"), "write the smaller value first");
        } else if low < limits[0] || high > limits[1] {
            let message = format!("the range [{low}, {high}] leaves {} to {}", limits[0], limits[1]);
            self.error(path, message, "values outside this range make no sense here");
        }
    }

    fn name(&mut self) {
        let name = &self.recipe.name;
        if !is_name(name) {
            let message = format!("`{}` is not a valid recipe name", name.escape_debug());
            self.error("name", message, NAMES);
        }
    }

    fn data(&mut self) {
        match &self.recipe.data.source {
            Source::Characters(characters) => self.characters(characters),
            Source::TextScenes(scenes) => self.text_scenes(scenes),
            Source::Shapes(shapes) => self.shapes(shapes),
            Source::BoxedShapes(shapes) => self.boxed_shapes(shapes),
            Source::Videos(videos) => self.videos(videos),
            Source::ImageFolder(_)
            | Source::ClassFolders(_)
            | Source::Cifar10(_)
            | Source::Idx(_)
            | Source::TextFolder(_)
            | Source::LabelMaps(_)
            | Source::Boxes(_)
            | Source::Crop511(_)
            | Source::FrameFolder(_)
            | Source::Sentences(_) => {}
            Source::TextFile(file) => {
                if file.tokenizer.is_some() && file.vocabulary.is_some() {
                    let message = "a vocabulary of characters beside a tokenizer, which has its own";
                    self.error("data.source.text_file.vocabulary", message, "remove one of the two");
                }
            }
        }
        let kind = self.recipe.data.source.kind();
        let Some(target) = &self.recipe.target else { return };
        // A target needs a source that others can check: the rules of MLPerf require a reference run for each (arXiv
        // 1910.01500, section 3.3). Values from the command line need no source.
        if target.of.is_none() && self.recipe.spans.override_within("target").is_none() {
            let message = "this target has no source";
            let hint = "add `of:` with who reached it, in how many runs, and where it is published";
            self.warn("target", message, hint);
        }
        for (index, goal) in target.goals().enumerate() {
            let path = index.checked_sub(1).map_or("target".to_owned(), |also| format!("target.also[{also}]"));
            let available = self.recipe.metrics();
            if available.contains(&goal.metric) {
                self.within_range(&format!("{path}.value"), goal);
            } else {
                let names: Vec<&str> = available.iter().map(|metric| metric.name()).collect();
                let hint = format!("{}: {}", kind.describe(), names.join(", "));
                self.error(&format!("{path}.metric"), "this metric is not available for these data", &hint);
            }
        }
        if let Some(reference) = &target.reference {
            self.within_range("target.reference.mean", Goal { metric: target.metric, value: reference.mean });
        }
    }

    /// A value that its metric can have.
    fn within_range(&mut self, path: &str, goal: Goal) {
        let [low, high] = goal.metric.range();
        if !(low..=high).contains(&goal.value) {
            let (name, value) = (goal.metric, goal.value);
            let hint = if high.is_finite() { format!("{low} to {high}") } else { format!("{low} or more") };
            self.error(path, format!("{value} is out of the range of {name}"), &hint);
        }
    }

    fn text_scenes(&mut self, scenes: &TextScenes) {
        let path = |key: &str| format!("data.source.text_scenes.{key}");
        self.range(&path("words"), scenes.words.map(|n| n as f64), [0.0, 50.0]);
        self.range(&path("font"), scenes.font, [8.0, 96.0]);
        self.range(&path("contrast"), scenes.contrast, [0.0, 255.0]);
        self.range(&path("distractors"), scenes.distractors.map(|n| n as f64), [0.0, 100.0]);
        self.range(&path("noise"), scenes.noise, [0.0, 255.0]);
    }

    fn shapes(&mut self, shapes: &Shapes) {
        let path = |key: &str| format!("data.source.shapes.{key}");
        self.range(&path("shapes"), shapes.shapes.map(|n| n as f64), [0.0, 100.0]);
        self.range(&path("radius"), shapes.radius, [0.01, 1.0]);
        self.range(&path("contrast"), shapes.contrast, [0.0, 255.0]);
        self.range(&path("noise"), shapes.noise, [0.0, 255.0]);
    }

    fn boxed_shapes(&mut self, shapes: &BoxedShapes) {
        let path = |key: &str| format!("data.source.boxed_shapes.{key}");
        self.range(&path("objects"), shapes.objects.map(|n| n as f64), [0.0, 100.0]);
        self.range(&path("distractors"), shapes.distractors.map(|n| n as f64), [0.0, 100.0]);
        self.range(&path("radius"), shapes.radius, [0.01, 0.5]);
        self.range(&path("contrast"), shapes.contrast, [0.0, 255.0]);
        self.range(&path("noise"), shapes.noise, [0.0, 255.0]);
    }

    fn videos(&mut self, videos: &Videos) {
        let path = |key: &str| format!("data.source.videos.{key}");
        self.range(&path("radius"), videos.radius, [4.0, videos.size as f64 / 3.0]);
        self.range(&path("speed"), videos.speed, [0.0, videos.size as f64]);
        self.range(&path("distractors"), videos.distractors.map(|n| n as f64), [0.0, 50.0]);
    }

    fn characters(&mut self, characters: &Characters) {
        let path = |key: &str| format!("data.source.characters.{key}");
        self.range(&path("font"), characters.font, [0.05, 2.0]);
        self.range(&path("stretch"), characters.stretch, [0.1, 10.0]);
        self.range(&path("contrast"), characters.contrast, [0.0, 255.0]);
        self.range(&path("blur"), characters.blur, [0.0, 64.0]);
        self.range(&path("noise"), characters.noise, [0.0, 255.0]);
    }

    fn loss(&mut self) {
        let loss = &self.recipe.loss;
        let first = loss.softmax_cross_entropy.iter().map(|entropy| ("loss.softmax_cross_entropy".to_owned(), entropy));
        let further = loss.cross_entropies.iter().map(|(name, entropy)| (further_path(name), entropy));
        for (path, entropy) in first.chain(further).filter(|(_, entropy)| entropy.label_smoothing > 0.3) {
            let message = format!("label smoothing {} is far above the usual 0.1", entropy.label_smoothing);
            self.warn(&format!("{path}.label_smoothing"), message, "arXiv 1512.00567 introduced it with 0.1");
        }
        let predictions = loss.predictions();
        let outputs: Vec<&str> = match self.recipe.model.outputs.is_empty() {
            true => vec![LOGITS],
            false => self.recipe.model.outputs.keys().map(String::as_str).collect(),
        };
        for (name, term) in &loss.formulas {
            let path = ConfigPath::from(format!("loss.formulas.{name}.formula").as_str());
            let names = names(&term.formula);
            let operands: Vec<&str> = names.iter().map(String::as_str).collect();
            if let Err(error) = parse(&term.formula, &operands, 1) {
                let span = self.recipe.spans.within(&path, &term.formula, error.at);
                self.found.push(Diagnostic::error(span, path, error.message));
            } else if !operands.iter().any(|name| outputs.contains(name)) {
                let hint = format!("outputs: {}", outputs.join(", "));
                self.error(&format!("loss.formulas.{name}.formula"), "it uses no output of the model", &hint);
            }
        }
        let own = loss.terms().any(|(_, term)| term.has_target());
        if !own && loss.cross_entropies.is_empty() && loss.comparisons.is_empty() && loss.formulas.is_empty() {
            return self.error("loss", "no loss term depends on the labels", "add `softmax_cross_entropy: {}`");
        }
        let outputs = &self.recipe.model.outputs;
        for (term, prediction) in predictions {
            if !outputs.contains_key(prediction) {
                let known = outputs.keys().map(String::as_str);
                let hint = suggest_or(prediction, known, "`model.outputs` is empty");
                self.error(&format!("{term}.prediction"), format!("the model has no output `{prediction}`"), &hint);
            }
        }
        let Some(l2) = &loss.l2 else { return };
        self.decay("loss.l2.weight", l2.weight, UsualDecay::OF_GRADIENTS);
        let (decay, ..) = self.recipe.optimizer.decay();
        if decay > 0.0 && l2.weight > 0.0 {
            let message = "weights decay twice: by this loss and by the optimizer";
            self.warn("loss.l2.weight", message, "for SGD the two are the same: keep one");
        }
    }

    fn decay(&mut self, path: &str, decay: f64, UsualDecay { most, usual, source }: UsualDecay) {
        if decay > most {
            self.warn(path, format!("weight decay {decay} is far above the usual {usual}"), source);
        }
    }

    fn optimizer(&mut self) {
        let recipe = self.recipe;
        let (decay, spared, groups) = recipe.optimizer.decay();
        let path = |key: &str| format!("optimizer.{}.{key}", recipe.optimizer.tag());
        self.decay(&path("weight_decay"), decay, recipe.optimizer.usual_decay());
        if decay == 0.0 && !spared.is_empty() {
            let message = "there is no weight decay, so excluding parameters from it has no effect";
            self.warn(&path("no_decay"), message, "set weight_decay, or remove no_decay");
        }
        let twice = |group: &DecayGroup| spared.iter().filter(|other| *other == group).count() > 1;
        if spared.iter().any(twice) {
            self.error(&path("no_decay"), "a group is listed twice", "list each group once");
        }
        for (n, _) in groups.iter().enumerate().filter(|(_, group)| group.weight_decay.is_none() && group.lr.is_none())
        {
            let message = "this group sets nothing";
            self.error(&path(&format!("groups[{n}]")), message, "set weight_decay or lr, or remove the group");
        }
        for finding in recipe.optimizer.findings() {
            self.report(finding.severity, &path(finding.key), finding.message, finding.hint);
        }
    }

    /// Whether a value was written in another file than `train.batch`. The command line is none: it tries things.
    fn is_from_elsewhere(&self, path: &str) -> bool {
        let [own, batch] = [path, "train.batch"].map(|path| self.recipe.span_of(&ConfigPath::from(path)));
        own.file != batch.file && !own.is_override() && !batch.is_override()
    }

    /// Whether the optimizer was changed, on the command line or in a file that extends another, but not the rate at
    /// this path.
    fn is_of_another_optimizer(&self, path: &str) -> bool {
        let optimizer = format!("optimizer.{}", self.recipe.optimizer.tag());
        let [rate, optimizer, name] = [path, &optimizer, "name"].map(|path| self.recipe.span(path));
        let changed = optimizer.is_override() || optimizer.file == name.file;
        changed && !rate.is_override() && rate.file != optimizer.file
    }

    fn schedule(&mut self) {
        let recipe = self.recipe;
        let tag = recipe.schedule.tag();
        let (peak, path) = (recipe.schedule.peak_lr(), format!("schedule.{tag}.{}", recipe.schedule.peak_key()));
        let per_256 = peak * 256.0 / recipe.train.batch as f64;
        match recipe.optimizer.usual_rate() {
            UsualRate::WithBatch if per_256 > 3.2 => {
                let message = format!(
                    "learning rate {peak} with batch {} is more than 32 times the usual one",
                    recipe.train.batch
                );
                self.warn(&path, message, "0.1 per 256 samples (arXiv 1706.02677)");
            }
            // A batch taken over without its learning rate: the rate scales with the batch (arXiv 1706.02677, section
            // 2). Fine-tuning uses a smaller rate on purpose.
            UsualRate::WithBatch if peak > 0.0 && per_256 < 0.1 / 32.0 && recipe.train.init_from.is_none() => {
                let batch = recipe.train.batch;
                let message = format!("learning rate {peak} with batch {batch} is less than 1/32 of the usual one");
                self.warn(&path, message, "0.1 per 256 samples; scale it with the batch (arXiv 1706.02677)");
            }
            // The batch and the learning rate come from different files, so they may not fit each other.
            UsualRate::WithBatch
                if peak > 0.0
                    && !(0.025..=0.4).contains(&per_256)
                    && recipe.train.init_from.is_none()
                    && self.is_from_elsewhere(&path) =>
            {
                let batch = recipe.train.batch;
                let message = format!(
                    "learning rate {peak} does not fit batch {batch}: {per_256:.2} per 256 samples, usual is 0.1"
                );
                self.warn("train.batch", message, "scale the learning rate with the batch (arXiv 1706.02677)");
            }
            // Between the bounds of any training and those of a rate that was chosen for this optimizer.
            UsualRate::WithBatch
                if peak > 0.0
                    && per_256 < 0.1 / 8.0
                    && recipe.train.init_from.is_none()
                    && self.is_of_another_optimizer(&path) =>
            {
                let message = format!(
                    "learning rate {peak} was chosen for another optimizer: it is {per_256:.3} per 256 samples, usual is 0.1"
                );
                self.warn(&path, message, "set it together with the optimizer (arXiv 1706.02677)");
            }
            UsualRate::About { rate, of, source } if peak > 3.0 * rate && self.is_of_another_optimizer(&path) => {
                let times = peak / rate;
                let message = format!(
                    "learning rate {peak} was chosen for another optimizer: it is {times:.0} times the usual one for {of}"
                );
                self.warn(&path, message, source);
            }
            UsualRate::About { rate, of, source } if peak > 20.0 * rate => {
                let message = format!("learning rate {peak} is more than 20 times the usual one for {of}");
                self.warn(&path, message, source);
            }
            UsualRate::WithBatch | UsualRate::About { .. } | UsualRate::Any => {}
        }
        if peak == 0.0 {
            self.error(&path, "nothing is learned with a learning rate of 0", "for example 0.1 per 256 samples");
        }
        for finding in recipe.schedule.findings(recipe.train.epochs) {
            self.report(finding.severity, &format!("schedule.{tag}.{}", finding.key), finding.message, finding.hint);
        }
        if let Some(warmup) = recipe.schedule.warmup() {
            self.warmup(warmup, &format!("schedule.{tag}.warmup"));
        }
    }

    /// The warm-up at this path.
    fn warmup(&mut self, warmup: &Warmup, path: &str) {
        let (peak, epochs) = (self.recipe.schedule.peak_lr(), self.recipe.train.epochs as f64);
        let [over, start_lr] = ["over", "start_lr"].map(|key| format!("{path}.{key}"));
        let (too_long, whole) = match warmup.over {
            Period::Epochs(over) => (over >= epochs, over.fract() == 0.0),
            Period::Steps(_) => (false, false),
        };
        if too_long {
            let message = "the warm-up lasts as long as the training";
            self.warn(&over, message, "5 of 90 epochs is usual (arXiv 1706.02677)");
        }
        if warmup.per == Per::Epoch && !whole {
            let message = format!("a warm-up `per: epoch` needs whole epochs, not {}", warmup.over);
            self.warn(&over, message, "use whole epochs, or remove `per: epoch`");
        }
        if warmup.shape == WarmupShape::Geometric && warmup.start_lr == 0.0 {
            let message = "a geometric warm-up cannot start at 0";
            self.error(&start_lr, message, "for example a hundredth of base_lr");
        }
        if warmup.start_lr > peak {
            let message = format!("the warm-up starts at {}, above base_lr = {peak}", warmup.start_lr);
            self.warn(&start_lr, message, "a warm-up rises to base_lr");
        }
    }

    fn npu(&mut self) {
        for (n, name) in self.recipe.npu.host_operators.iter().enumerate() {
            if !Op::names().any(|known| known == name) {
                let message = format!("no device operator is named `{}`", name.escape_debug());
                let hint = suggest(name, Op::names().collect::<Vec<_>>());
                self.error(&format!("npu.host_operators[{n}]"), message, &hint);
            }
        }
        let (path, scale) = match &self.recipe.npu.loss_scale {
            LossScale::None => return,
            LossScale::Fixed(fixed) => ("npu.loss_scale.fixed.scale", fixed.scale),
            LossScale::Dynamic(dynamic) => ("npu.loss_scale.dynamic.init", dynamic.init),
        };
        if scale.log2().fract() != 0.0 {
            let message = format!("loss scale {scale} is not a power of two, so the scaling causes rounding errors");
            self.warn(path, message, "powers of two only change the exponent (arXiv 1710.03740)");
        }
    }

    fn layers(&mut self, model: &ResolvedModel) {
        let mut open: Vec<&ResolvedLayer> = model.body.iter().collect();
        while let Some(layer) = open.pop() {
            layer.kind.lint(&mut Lints {
                batch: self.recipe.train.batch,
                parts: &self.recipe.train.parts,
                spans: &self.recipe.spans,
                path: layer.path.key(layer.kind.tag()),
                found: &mut self.found,
            });
            open.extend(layer.kind.describe().inside().into_iter().flatten());
        }
    }
}
