//! Inputs of the targets `settings` and `status`: messages with each kind of value, at their limits, and damaged.
//! `make docs` writes those that are missing into the corpus.
#![expect(
    clippy::unwrap_used,
    clippy::indexing_slicing,
    reason = "tests end at the first surprise"
)]

use model::Timestamp;
use model::setting::{
    AgentStatus, FlushRequest, NodeSettings, Override, Rejection, RejectionCode,
    SETTINGS_BYTES_MAX, SettingValue, SourceState, SourceStatus, UnreadReason, UnreadSource,
};
use std::path::Path;
use std::time::Duration;

const UNTIL: Timestamp = Timestamp(1_767_708_000_000_000);

/// An input: its name, its bytes, and whether the decoder accepts it.
type Input = (&'static str, Vec<u8>, bool);

fn change(values: &[(&str, SettingValue)], until: Option<Timestamp>) -> Override {
    let values = values.iter().map(|(key, value)| ((*key).into(), value.clone())).collect();
    Override { values, until }
}

fn list(texts: &[&str]) -> SettingValue {
    SettingValue::List(texts.iter().map(|&text| text.into()).collect())
}

fn sources(changes: &[(&str, Override)]) -> NodeSettings {
    let sources = changes.iter().map(|(name, change)| ((*name).into(), change.clone())).collect();
    NodeSettings { sources, ..NodeSettings::default() }
}

/// Field `number` of a message as a text: key, length, bytes.
fn field(number: u8, bytes: &[u8]) -> Vec<u8> {
    [&[number << 3 | 2, u8::try_from(bytes.len()).unwrap()], bytes].concat()
}

fn settings() -> Vec<Input> {
    let period = SettingValue::Duration(Duration::from_micros(1_500_000));
    let bursts = |count: u32| {
        let burst =
            change(&[("period", period.clone()), ("flush_on", list(&["job_end"]))], Some(UNTIL));
        let bursts = (0..count).map(|n| (format!("s{n}").into(), burst.clone())).collect();
        NodeSettings { bursts, ..NodeSettings::default() }
    };
    let promotions = (0..64).map(|n| (format!("perf_{n}_.*").into(), UNTIL)).collect();
    let flush = |number| FlushRequest { source: "cpu".into(), number };
    let one = |value: SettingValue| {
        wire::encode_settings(&sources(&[("perf", change(&[("key", value)], Some(UNTIL)))]))
    };
    let switch = one(SettingValue::Switch(true));
    let cut = switch[..switch.len() - 1].to_vec();
    vec![
        ("switch", switch.clone(), true),
        ("number", one(SettingValue::Number(u64::MAX)), true),
        ("duration", one(period.clone()), true),
        ("text", one(SettingValue::Text("a\u{1b}[2J\u{202e}é\"\\".into())), true),
        ("list", one(list(&["cache_ll", "", "cpu/event=0x3c", "umask=0x0/"])), true),
        ("no_end", wire::encode_settings(&sources(&[("load", change(&[], None))])), true),
        (
            "first_instant",
            wire::encode_settings(&sources(&[("load", change(&[], Some(Timestamp(i64::MIN))))])),
            true,
        ),
        ("bursts", wire::encode_settings(&bursts(5)), true),
        (
            "promotions",
            wire::encode_settings(&NodeSettings { promotions, ..NodeSettings::default() }),
            true,
        ),
        (
            "flushes",
            wire::encode_settings(&NodeSettings {
                flushes: vec![flush(17), flush(17), flush(u64::MAX)],
                ..NodeSettings::default()
            }),
            true,
        ),
        ("unknown_field", [switch.clone(), field(15, b"later")].concat(), true),
        ("twice", [switch.clone(), switch].concat(), true),
        // A setting with a key and without a value: a type that this version does not know.
        ("no_value", field(1, &[field(1, b"perf"), field(2, &field(1, b"key"))].concat()), false),
        ("cut", cut, false),
        ("length_beyond_the_end", vec![0x0a, 0x7f, 0x0a], false),
        ("no_utf8", field(1, &field(1, b"\xff\xfe")), false),
        ("wrong_type", vec![0x08, 0x01], false),
        ("endless_number", vec![0xff; 11], false),
        ("too_long", vec![0; SETTINGS_BYTES_MAX + 1], false),
    ]
}

fn status() -> Vec<Input> {
    let rejection = |setting: &str, code| Rejection {
        setting: setting.to_owned(),
        code,
        reason: "`remote.allow` has no `bursts`".to_owned(),
        until: (code == RejectionCode::Shortened).then_some(UNTIL),
    };
    let source = |state| {
        let (source, reason) = ("rapl/zones".to_owned(), "a: b | c".to_owned());
        SourceStatus { source, state, reason }
    };
    let unread = |reason| UnreadSource {
        source: "process".to_owned(),
        reason,
        optional: vec!["process_io_.*".to_owned(), "(".to_owned()],
    };
    let codes = |setting: &str| {
        RejectionCode::ALL.iter().map(|code| rejection(setting, *code)).collect::<Vec<_>>()
    };
    let of = |status: AgentStatus| wire::encode_status(&status).into_bytes();
    let default = AgentStatus::default;
    let whole = of(AgentStatus { rejected: codes("sources.load.period"), ..default() });
    let damaged = damaged_status(&whole);
    let accepted = vec![
        ("empty", Vec::new(), true),
        ("clock", of(AgentStatus { now: Timestamp(i64::MIN), stops: true, ..default() }), true),
        (
            "numbers",
            of(AgentStatus { generation: u64::MAX, wait_us: u64::MAX, cut: u32::MAX, ..default() }),
            true,
        ),
        ("rejections", whole.clone(), true),
        ("all_settings_rejected", of(AgentStatus { rejected: codes(""), ..default() }), true),
        (
            "promotions_rejected",
            of(AgentStatus { rejected: codes("promote.perf_(a|b).*"), ..default() }),
            true,
        ),
        (
            "states",
            of(AgentStatus {
                sources: SourceState::ALL.iter().copied().map(source).collect(),
                ..default()
            }),
            true,
        ),
        (
            "unread",
            of(AgentStatus {
                unread: UnreadReason::ALL.iter().copied().map(unread).collect(),
                ..default()
            }),
            true,
        ),
        (
            "unprintable",
            of(AgentStatus { rejected: codes("\u{1b}[2J\u{202e}\0"), ..default() }),
            true,
        ),
        (
            "cut_to_the_limit",
            of(AgentStatus { rejected: (0..40).flat_map(|_| codes("x")).collect(), ..default() }),
            true,
        ),
        ("a_number_alone", b"CAA".to_vec(), true),
    ];
    accepted.into_iter().chain(damaged).collect()
}

fn damaged_status(whole: &[u8]) -> Vec<Input> {
    let mut flipped = whole.to_vec();
    flipped[1] = b'w';
    vec![
        ("cut_text", whole[..whole.len() - 3].to_vec(), false),
        ("flipped_letter", flipped, false),
        ("other_alphabet", b"CAgQ-_".to_vec(), false),
        ("padded", b"CAA=".to_vec(), false),
        ("no_base64", "é?".as_bytes().to_vec(), false),
        ("too_long", vec![b'A'; 8 << 10], false),
    ]
}

#[test]
fn the_corpus_has_each_kind_of_message() {
    type Decodes = fn(&[u8]) -> bool;
    let targets: [(&str, Vec<Input>, Decodes); 2] = [
        ("settings", settings(), |bytes| wire::decode_settings(bytes).is_ok()),
        ("status", status(), |bytes| wire::decode_status(bytes).is_ok()),
    ];
    for (target, inputs, decodes) in targets {
        assert!(inputs.len() >= 12, "{target}");
        for (name, bytes, is_accepted) in inputs {
            assert_eq!(decodes(&bytes), is_accepted, "{target}/{name}");
            let folder = Path::new(env!("CARGO_MANIFEST_DIR")).join("corpus").join(target);
            let file = folder.join(name);
            if std::env::var_os("UPDATE_DOCS").is_some() {
                std::fs::write(&file, &bytes).unwrap();
            }
            let kept = std::fs::read(&file).unwrap_or_default();
            assert!(kept == bytes, "{target}/{name} is stale; `make docs` writes it");
        }
    }
}
