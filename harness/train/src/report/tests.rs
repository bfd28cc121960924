use super::*;
use crate::environment::Environment as Machine;
use crate::event::{SCHEMA_VERSION, StepDone};
use std::path::Path;
use zoo_recipe::schema::{Metric, Reference, Score, Target};

fn started() -> Started {
    Started {
        device: "host".to_owned(),
        schema_version: SCHEMA_VERSION,
        recipe: "tiny".into(),
        resumed_at: None,
        parameters: 1_234_567,
        batch: 8,
        ranks: 1,
        epochs: 2,
        steps_per_epoch: 3,
        steps: 6,
        data: "generated characters, 10 classes".into(),
        train_samples: 24,
        val_samples: 8,
        classes: 10,
        seed: 7,
        target: Some(Target {
            metric: Metric::Top1,
            value: 0.88,
            also: Vec::new(),
            sigma: Some(0.01),
            of: Some("A < B".into()),
            reference: None,
            margin: None,
        }),
        linear_baseline: Some(0.148),
        baselines: Vec::new(),
        golden: GoldenVerdict::Pass,
        environment: Machine {
            zoo: "0.1.0".into(),
            platform: "linux x86_64".into(),
            cpu: Some("A processor".into()),
            cpu_features: vec!["avx2".into(), "fma".into()],
            threads: 2,
            kernels: "fast".into(),
            revision: Some("0123abc-dirty".into()),
        },
    }
}

fn step(step: u64) -> Event {
    let (loss, lr) = (2.5 / step as f64, 0.1 * step as f64);
    Event::Step(StepDone {
        step,
        epoch: 0.0,
        loss,
        components: vec![],
        lr,
        gradient_norm: (step % 2 == 1).then_some(1.5 / step as f64),
        loss_scale: None,
        skipped: false,
        images_per_s: 100.0,
        seconds: 1.0,
    })
}

fn evaluated(step: u64, top1: f64) -> Event {
    let scores = vec![
        Score { metric: Metric::Top1, value: top1, of: None },
        Score { metric: Metric::Top5, value: 1.0, of: None },
    ];
    Event::Evaluated(Evaluated { step, epoch: step as f64 / 3.0, samples: 8, loss: Some(0.5), scores, seconds: 1.0 })
}

fn result(achieved: f64, target: Option<f64>) -> Event {
    Event::Result(RunResult {
        device: "host".to_owned(),
        skipped_steps: 0,
        not_finite: Vec::new(),
        schema_version: SCHEMA_VERSION,
        metric: Metric::Top1,
        target,
        achieved: Some(achieved),
        met: target.map(|target| achieved >= target),
        also: Vec::new(),
        epochs: 2,
        steps: 6,
        seconds: 171.2,
        linear_baseline: Some(0.148),
        baselines: Vec::new(),
        golden: GoldenVerdict::Pass,
    })
}

fn page(events: &[Event]) -> String {
    let reference = Reference { paper: Some("arXiv 1 & 2".into()), ..Reference::default() };
    let (yaml, pictures) = ("name: tiny  # <b>", Path::new("no/pictures"));
    let launch = Launch { recipe: "tiny".into(), ..Launch::default() };
    let source = Source { yaml, description: "A network", reference: &reference, pictures, launch: Some(&launch) };
    events.iter().collect::<Report>().page(&source, Vec::new()).unwrap()
}

fn whole_run() -> Vec<Event> {
    let mut events = vec![Event::Started(Box::new(started()))];
    events.extend((1..=3).map(step));
    events.push(evaluated(3, 0.5));
    events.extend((4..=6).map(step));
    events.push(evaluated(6, 0.9));
    events.push(result(0.9, Some(0.88)));
    events
}

#[test]
fn the_page_of_a_finished_run() {
    let page = page(&whole_run());
    let body = page.split_once("<body>").unwrap().1;
    insta::assert_snapshot!(body);
}

/// A metric that is not a share has its own chart, with its own unit.
#[test]
fn a_target_in_nats_is_drawn_in_nats() {
    let mut begun = started();
    let target = Target { metric: Metric::CrossEntropy, value: 1.88, ..begun.target.clone().unwrap() };
    begun.target = Some(target);
    let mut events = vec![Event::Started(Box::new(begun)), step(1), evaluated(3, 0.5)];
    let Event::Result(result) = result(0.5, Some(1.88)) else { unreachable!("a result") };
    events.push(Event::Result(RunResult { metric: Metric::CrossEntropy, met: Some(true), ..result }));
    let page = page(&events);
    for expected in
        ["target met: cross_entropy 0.5, target 1.88", "target cross_entropy 1.88", "cross_entropy goes from 0.5"]
    {
        assert!(page.contains(expected), "{expected}");
    }
    assert!(!page.contains("188 %"));
}

#[test]
fn nothing_comes_from_elsewhere_and_text_is_escaped() {
    let page = page(&whole_run());
    for forbidden in ["http://", "https://", "<script", "<link", "<img", "url(", "@import", "A < B", "# <b>"] {
        assert!(!page.contains(forbidden), "{forbidden}");
    }
    assert!(page.contains("A &lt; B") && page.contains("# &lt;b&gt;"));
}

#[test]
fn every_end_has_its_words() {
    let begun = vec![Event::Started(Box::new(started())), step(1)];
    let with = |event: Event| page(&[begun.clone(), vec![event]].concat());
    assert!(page(&begun).contains("running: step 1 of 6"));
    assert!(with(Event::Interrupted { step: 1 }).contains("interrupted after step 1 of 6"));
    let failed = with(Event::Failed { step: 1, message: "the loss <is> NaN".into() });
    assert!(failed.contains("failed after step 1") && failed.contains("the loss &lt;is&gt; NaN"));
    assert!(with(result(0.87, Some(0.88))).contains("target missed: top1 87 %, target 88 %"));
    assert!(with(result(0.87, None)).contains("finished: top1 87 %"));
    assert!(page(&[]).contains("nothing has happened yet"));
}

#[test]
fn a_resumed_run_is_running_again() {
    let mut again = started();
    again.resumed_at = Some(1);
    let events =
        [Event::Started(Box::new(started())), step(1), Event::Interrupted { step: 1 }, Event::Started(Box::new(again))];
    let page = page(&events);
    assert!(page.contains("running: step 1 of 6") && page.contains("once"));
}

#[test]
fn evaluations_are_no_training() {
    let at = |event: Event, after: f64| match event {
        Event::Step(done) => Event::Step(StepDone { seconds: after, ..done }),
        Event::Evaluated(done) => Event::Evaluated(Evaluated { seconds: after, ..done }),
        other => other,
    };
    // Evaluations of 3 and 5 seconds.
    let events = [at(step(3), 10.0), at(evaluated(3, 0.5), 13.0), at(step(6), 20.0), at(evaluated(6, 0.9), 25.0)];
    assert_eq!(results::training_seconds(&events, 26.0), 18.0);
}
