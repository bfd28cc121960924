use super::*;
use crate::event::{Evaluated, StepDone};
use zoo_recipe::schema::{Metric, Score};

fn hex(bytes: &[u8]) -> String {
    bytes.iter().map(|byte| format!("{byte:02x}")).collect()
}

/// Written with `RecordWriter` and the messages of Python's tensorboard 2.20.
#[test]
fn records_are_those_of_tensorboard() {
    let record = |wall_time, step, content| {
        hex(&tfrecord::frame(&message::Event { wall_time, step, content: Some(content) }.encode_to_vec()))
    };
    let scalars = [scalar("train/loss".to_owned(), 2.25), scalar("train/learning_rate".to_owned(), 0.0)];
    let entry = |(tag, value)| Entry { tag, value: Some(value), metadata: None };
    assert_eq!(
        record(1.5, 0, Content::FileVersion("brain.Event:2".to_owned())),
        "1800000000000000a37f4b2209000000000000f83f1a0d627261696e2e4576656e743a322a28646c"
    );
    assert_eq!(
        record(1_700_000_000.25, 301, Content::SessionLog(SessionLog { status: 1 })),
        "100000000000000095fbfe180900001040fc54d94110ad023a020801cb79b93b"
    );
    assert_eq!(
        record(1_700_000_000.25, 300, Content::Summary(Summary { value: scalars.map(entry).into() })),
        "3d000000000000006049f1ec0900001040fc54d94110ac022a2f0a110a0a747261696e2f6c6f737315000010400a1a0a13747261696e2f\
         6c6561726e696e675f7261746515000000003d65e2dc"
    );
}

/// Written with the messages of Python's tensorboard 2.20, and its plugin `hparams`.
#[test]
fn images_graph_and_settings_are_those_of_tensorboard() {
    let event = |step, content| hex(&message::Event { wall_time: 1.5, step, content: Some(content) }.encode_to_vec());
    let png = b"\x89PNG\r\n\x1a\n\0\0\0\rIHDR\0\0\0\x07\0\0\0\x05".to_vec();
    let entry = Entry { tag: "worst/0".to_owned(), value: Some(image(&png)), metadata: None };
    assert_eq!(
        event(3, Content::Summary(Summary { value: vec![entry] })),
        "09000000000000f83f10032a2d0a2b0a07776f7273742f302220080510071803221889504e470d0a1a0a0000000d49484452000000070000\
         0005"
    );
    assert_eq!(event(0, Content::Graph(b"abc".to_vec())), "09000000000000f83f2203616263");
    assert_eq!(
        event(0, for_hparams(b"abc".to_vec())),
        "09000000000000f83f2a380a360a1c5f68706172616d735f2f73657373696f6e5f73746172745f696e666f4204080112004a100a0e0a0768\
         706172616d731203616263"
    );
    let seed = message::Setting { kind: Some(message::SettingKind::Number(7.0)) };
    let start = message::SessionStart { hparams: [("seed".to_owned(), seed)].into(), start_time_secs: 1.5 };
    assert_eq!(hex(&start.encode_to_vec()), "0a110a04736565641209110000000000001c4029000000000000f83f");
}

#[test]
fn a_graph_names_what_gives_each_operand() {
    use zoo_graph::{
        DType, Graph, NodeId, Phase, Scope, TensorType,
        ops::{Rectifier, Relu},
    };
    let mut graph = Graph::default();
    let image = graph.add_input("image", TensorType::plain([1, 2], DType::F32));
    let scope = Scope { phase: Phase::Forward, origin: None };
    graph.add(&scope, "a.b", Relu { rectifier: Rectifier::Relu }, &[image]).unwrap();
    assert_eq!(graph.node(NodeId(0)).name, "a.b");
    let definition = graph::definition(&graph);
    // NodeDef { name: "inputs/image", op: "Placeholder" }, NodeDef { name: "a/b", op: "Relu", input: "inputs/image" }
    let expected = "0a1b0a0c696e707574732f696d616765120b506c616365686f6c6465720a190a03612f62120452656c751a0c696e707574732f696d616765";
    assert_eq!(hex(&definition.encode_to_vec()), expected);
}

/// Values of RFC 3720, appendix B.4, masked by hand.
#[test]
fn checksums_by_the_standard() {
    assert_eq!(crc32c::crc32c(&[0; 32]), 0x8a91_36aa);
    assert_eq!(crc32c::crc32c(&[0xff; 32]), 0x62a8_ab43);
    let turned = 0x8a91_36aa_u32.rotate_right(15);
    assert_eq!(tfrecord::masked_crc(&[0; 32]), turned.wrapping_add(0xa282_ead8));
}

/// Payloads of a file, each with both checksums verified.
fn records(mut bytes: &[u8]) -> Vec<Vec<u8>> {
    let mut records = Vec::new();
    while !bytes.is_empty() {
        let (length, rest) = bytes.split_at(8);
        let (crc, rest) = rest.split_at(4);
        assert_eq!(crc, tfrecord::masked_crc(length).to_le_bytes());
        let (record, rest) = rest.split_at(u64::from_le_bytes(length.try_into().unwrap()) as usize);
        let (crc, rest) = rest.split_at(4);
        assert_eq!(crc, tfrecord::masked_crc(record).to_le_bytes());
        records.push(record.to_vec());
        bytes = rest;
    }
    records
}

#[test]
fn each_run_has_a_file_of_its_own() {
    let dir = tempfile::tempdir().unwrap();
    let step = Event::Step(StepDone {
        gradient_norm: None,
        loss_scale: None,
        skipped: false,
        step: 1,
        epoch: 0.5,
        loss: 2.0,
        components: vec![("l2".into(), 0.5)],
        lr: 0.1,
        images_per_s: 9.0,
        seconds: 1.0,
    });
    let scores = vec![Score { metric: Metric::Top1, value: 0.5, of: None }];
    let evaluated =
        Event::Evaluated(Evaluated { step: 1, epoch: 0.5, samples: 4, loss: Some(1.0), scores, seconds: 2.0 });
    for _ in 0..2 {
        let mut board = TensorBoard::create(dir.path()).unwrap();
        board.hear(&step).unwrap();
        board.hear(&evaluated).unwrap();
    }
    let mut files: Vec<_> = fs::read_dir(dir.path()).unwrap().map(|entry| entry.unwrap().path()).collect();
    files.sort();
    assert_eq!(files.len(), 2);
    for file in files {
        let records = records(&fs::read(file).unwrap());
        assert_eq!(records.len(), 3);
        for (record, tags) in records.iter().zip([&["brain.Event:2"][..], &["train/loss", "train/l2"], &["val/top1"]]) {
            let text = String::from_utf8_lossy(record);
            assert!(tags.iter().all(|tag| text.contains(tag)), "{text}");
        }
    }
}
