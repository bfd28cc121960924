//! Files of a real NPU, which are not part of this project.

use super::adds_up;
use std::path::Path;
use zoo_measured::{Unit, open};

#[test]
#[ignore = "needs ../shared"]
fn a_step_of_a_910b() {
    let folder = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../../shared/data/profiles");
    let recording = open(&folder.join("gpt-layer-910b-tp8-kernel_details.csv")).unwrap();
    adds_up(&recording);
    assert_eq!((recording.steps.len(), recording.kernels.len()), (1, 591));
    assert!((recording.step_ms() - 516.886).abs() < 1e-3);
    let links = recording.kernels.iter().filter(|kernel| kernel.unit == Unit::Link);
    assert_eq!(links.count(), 19);
    let recording = open(&folder.join("flash-attention-910b-kernel_details.csv")).unwrap();
    adds_up(&recording);
    assert_eq!((recording.steps[0].label.as_str(), recording.kernels.len()), ("19", 29));
}
