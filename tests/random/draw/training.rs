//! Optimizer, schedule, gradients and training.

use super::{Drawing, settings};
use crate::tape::Tape;
use serde_json::{Map, Value, json};

pub(super) fn draw(d: &mut Drawing<'_>, recipe: &mut Map<String, Value>) {
    let module = d.modules.first().map_or("*".to_owned(), |module| format!("{module}*"));
    let optimizer = optimizer(&mut d.tape, &module);
    recipe.insert("optimizer".to_owned(), optimizer);
    let schedule = schedule(&mut d.tape);
    recipe.insert("schedule".to_owned(), schedule);
    if d.tape.rarely(3) {
        let gradients = gradients(&mut d.tape);
        recipe.insert("gradients".to_owned(), gradients);
    }
    let train = train(d);
    recipe.insert("train".to_owned(), train);
}

/// Sets a number half of the time.
fn sometimes(tape: &mut Tape<'_>, set: &mut Map<String, Value>, key: &str, [low, high]: [f64; 2]) {
    if tape.flag() {
        set.insert(key.to_owned(), json!(tape.number(low, high)));
    }
}

/// `module` matches the parameters of a module.
fn optimizer(tape: &mut Tape<'_>, module: &str) -> Value {
    let tag = tape.of(&["sgd", "adam", "adamw", "rmsprop", "adagrad", "lion", "lars", "lamb"]);
    if tape.rarely(9) {
        return json!(tag);
    }
    let mut set = Map::new();
    match tag {
        "sgd" => {
            sometimes(tape, &mut set, "momentum", [0.0, 0.95]);
            if set.get("momentum").is_some_and(|momentum| *momentum != 0.0) && tape.flag() {
                set.insert("nesterov".to_owned(), json!(!tape.rarely(3)));
            }
        }
        "rmsprop" => {
            sometimes(tape, &mut set, "momentum", [0.0, 0.95]);
            sometimes(tape, &mut set, "alpha", [0.5, 0.99]);
            if tape.flag() {
                set.insert("centered".to_owned(), json!(tape.flag()));
            }
            if tape.flag() {
                set.insert("form".to_owned(), json!(tape.of(&["pytorch", "tensorflow"])));
            }
        }
        "adagrad" => {
            sometimes(tape, &mut set, "initial_accumulator_value", [0.0, 0.5]);
            sometimes(tape, &mut set, "lr_decay", [0.0, 0.5]);
        }
        "lars" => {
            sometimes(tape, &mut set, "momentum", [0.0, 0.95]);
            sometimes(tape, &mut set, "trust", [0.001, 0.02]);
        }
        _ => {
            sometimes(tape, &mut set, "beta1", [0.5, 0.95]);
            sometimes(tape, &mut set, "beta2", [0.8, 0.999]);
        }
    }
    if !matches!(tag, "sgd" | "lion" | "lars") && tape.flag() {
        set.insert("eps".to_owned(), json!(tape.of(&[1e-3, 1e-6, 0.05])));
    }
    sometimes(tape, &mut set, "weight_decay", [0.0, 0.1]);
    if tape.rarely(3) {
        let groups = tape.of(&[json!(["bn"]), json!(["bias"]), json!(["bn", "bias"]), json!([])]);
        set.insert("no_decay".to_owned(), groups);
    }
    if tape.rarely(3) {
        let names = tape.of(&[json!("*"), json!([module, "*"]), json!(module)]);
        let mut group = settings([("match", names)]);
        sometimes(tape, &mut group, "weight_decay", [0.0, 0.2]);
        if group.len() == 1 || tape.flag() {
            group.insert("lr".to_owned(), json!(tape.of(&["0.5x", "2x", "64x"])));
        }
        set.insert("groups".to_owned(), json!([group]));
    }
    json!({ tag: set })
}

/// A duration within the training, which has eight epochs.
fn period(tape: &mut Tape<'_>) -> Value {
    let epochs = tape.between(1, 4);
    json!(tape.of(&[format!("{epochs} epochs"), "3 steps".to_owned(), "0.5 epochs".to_owned(), "1 epoch".to_owned()]))
}

fn warmup(tape: &mut Tape<'_>) -> Value {
    let mut set = settings([("over", period(tape))]);
    if tape.flag() {
        set.insert("count".to_owned(), json!(tape.of(&["from_one", "from_zero"])));
    }
    if tape.flag() {
        set.insert("per".to_owned(), json!(tape.of(&["step", "epoch"])));
        if set["per"] == "epoch" {
            set.insert("over".to_owned(), json!("2 epochs"));
        }
    }
    let geometric = tape.flag();
    if geometric || tape.flag() {
        set.insert("shape".to_owned(), json!(if geometric { "geometric" } else { "linear" }));
        set.insert("start_lr".to_owned(), json!(tape.number(1e-4, 9e-4)));
    }
    json!(set)
}

fn schedule(tape: &mut Tape<'_>) -> Value {
    let tags = [
        "constant",
        "cosine",
        "guide_cosine",
        "poly",
        "log",
        "step",
        "multi_step",
        "exponential",
        "inverse_sqrt",
        "one_cycle",
    ];
    let tag = tape.of(&tags);
    let rate = json!(tape.number(0.001, 0.02));
    let mut set = Map::new();
    let per = |tape: &mut Tape<'_>, set: &mut Map<String, Value>| {
        if tape.flag() {
            set.insert("per".to_owned(), json!(tape.of(&["step", "epoch"])));
        }
    };
    let t_max = |tape: &mut Tape<'_>, set: &mut Map<String, Value>| {
        if tape.flag() {
            set.insert("t_max".to_owned(), json!(tape.of(&["after_warmup", "all", "all_plus_one"])));
        }
    };
    match tag {
        "guide_cosine" => {
            set.insert("lr_max".to_owned(), rate);
            sometimes(tape, &mut set, "lr_init", [0.0, 0.001]);
            if tape.flag() {
                set.insert("warmup".to_owned(), period(tape));
            }
            return json!({ tag: set });
        }
        "one_cycle" => {
            set.insert("max_lr".to_owned(), rate);
            sometimes(tape, &mut set, "div_factor", [1.0, 30.0]);
            sometimes(tape, &mut set, "final_div_factor", [1.0, 1000.0]);
            sometimes(tape, &mut set, "pct_start", [0.1, 0.9]);
            if tape.flag() {
                set.insert("anneal".to_owned(), json!(tape.of(&["cosine", "linear"])));
            }
            return json!({ tag: set });
        }
        "cosine" | "poly" => {
            set.insert("base_lr".to_owned(), rate);
            sometimes(tape, &mut set, "min_lr", [0.0, 0.001]);
            per(tape, &mut set);
            t_max(tape, &mut set);
            if tag == "poly" {
                sometimes(tape, &mut set, "power", [0.0, 2.0]);
            }
        }
        "log" => {
            set.extend(settings([("base_lr", rate), ("end_lr", json!(tape.number(1e-4, 1e-3)))]));
            per(tape, &mut set);
        }
        "step" | "exponential" => {
            set.insert("base_lr".to_owned(), rate);
            if tag == "step" || tape.flag() {
                set.insert("every".to_owned(), period(tape));
            }
            if tag == "exponential" || tape.flag() {
                set.insert("gamma".to_owned(), json!(tape.number(0.1, 1.0)));
            }
            if tag == "exponential" {
                per(tape, &mut set);
            }
        }
        "multi_step" => {
            set.extend(settings([("base_lr", rate), ("milestones", json!(["3 epochs", "5 epochs"]))]));
            sometimes(tape, &mut set, "gamma", [0.0, 1.0]);
        }
        _ => drop(set.insert("base_lr".to_owned(), rate)),
    }
    if tape.rarely(3) {
        set.insert("warmup".to_owned(), warmup(tape));
    }
    json!({ tag: set })
}

fn gradients(tape: &mut Tape<'_>) -> Value {
    let mut set = Map::new();
    let clips = [json!({ "norm": tape.number(0.1, 5.0) }), json!({ "value": tape.number(0.01, 1.0) })];
    match tape.below(4) {
        0 => drop(set.insert("clip".to_owned(), json!([clips[0]]))),
        1 => drop(set.insert("clip".to_owned(), json!([clips[1]]))),
        2 => drop(set.insert("clip".to_owned(), json!(clips))),
        _ => {}
    }
    if tape.rarely(3) {
        set.insert("clip_scaled".to_owned(), json!(tape.flag()));
    }
    if tape.rarely(3) {
        set.insert("skip_loss_above".to_owned(), json!(tape.number(0.5, 100.0)));
    }
    json!(set)
}

fn train(d: &mut Drawing<'_>) -> Value {
    let mut set = settings([("batch", json!(d.batch)), ("epochs", json!(8))]);
    let modules = d.modules.clone();
    let tape = &mut d.tape;
    if modules.len() > 2 && tape.rarely(3) {
        let mut part = settings([("modules", json!([tape.of(&modules)]))]);
        if tape.flag() {
            part.insert("lr".to_owned(), json!(tape.number(0.0, 2.0)));
        }
        match tape.below(4) {
            1 => drop(part.insert("trained".to_owned(), json!(tape.flag()))),
            2 => drop(part.insert("from_epoch".to_owned(), json!(tape.between(0, 3)))),
            3 => drop(part.insert("until_epoch".to_owned(), json!(tape.between(4, 6)))),
            _ => {}
        }
        if tape.flag() {
            part.insert("statistics".to_owned(), json!(tape.of(&["batch", "stored"])));
        }
        if tape.rarely(3) {
            part.insert("leaks".to_owned(), json!(tape.flag()));
        }
        set.insert("parts".to_owned(), json!([part]));
    }
    if tape.rarely(3) {
        set.insert("ema".to_owned(), json!(tape.number(0.0, 0.99)));
        if tape.flag() {
            set.insert("ema_warmup".to_owned(), json!(tape.flag()));
        }
    }
    if tape.rarely(4) {
        let mut lookahead = Map::new();
        sometimes(tape, &mut lookahead, "decay", [0.0, 0.9]);
        sometimes(tape, &mut lookahead, "power", [0.0, 2.0]);
        if tape.flag() {
            lookahead.insert("every".to_owned(), json!(tape.between(1, 4)));
        }
        set.insert("lookahead".to_owned(), json!(lookahead));
    }
    for key in ["eval_every", "checkpoint_every"] {
        if tape.rarely(4) {
            set.insert(key.to_owned(), period(tape));
        }
    }
    if tape.rarely(4) {
        set.insert("max_steps".to_owned(), json!(tape.between(5, 30)));
    }
    if tape.rarely(4) {
        set.insert("seed".to_owned(), json!(tape.below(9)));
    }
    if tape.rarely(4) {
        set.insert("sync_bn".to_owned(), json!(tape.flag()));
    }
    json!(set)
}
