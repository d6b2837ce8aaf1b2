//! Slurm's trackable resources, as text (`cpu=4,mem=1200M,node=4,gres/gpu=4`) and as JSON.

use super::json::{Number, Text};
use jobs::Resources;
use serde::Deserialize;

const MIB: u64 = 1 << 20;

/// One resource of a JSON list.
#[derive(Clone, Debug, Default, Deserialize)]
#[serde(default)]
pub(super) struct Tres {
    #[serde(rename = "type")]
    pub(super) kind: Text,
    pub(super) name: Text,
    pub(super) count: Number,
}

/// Resources of a text. Missing or invalid numbers are skipped.
pub(super) fn of_text(text: &str) -> Resources {
    let mut found = Found::default();
    for (name, count) in text.split(',').filter_map(|part| part.split_once('=')) {
        let number = || count.parse().ok();
        match name.trim() {
            "cpu" => found.resources.cpus = number(),
            "node" => found.resources.nodes = number(),
            "mem" => found.resources.memory_bytes = memory(count),
            name => found.gpus(name.strip_prefix("gres/"), number()),
        }
    }
    found.done()
}

/// Resources of a list of allocated resources: memory is in mebibytes there.
pub(super) fn of_list(list: &[Tres]) -> Resources {
    let mut found = Found::default();
    for Tres { kind, name, count } in list {
        match &*kind.0 {
            "cpu" => found.resources.cpus = count.small(),
            "node" => found.resources.nodes = count.small(),
            "mem" => found.resources.memory_bytes = mebibytes(*count),
            "gres" => found.gpus(Some(&name.0), count.small()),
            _ => {}
        }
    }
    found.done()
}

/// Mebibytes as bytes.
pub(super) fn mebibytes(count: Number) -> Option<u64> {
    u64::try_from(count.0?).ok()?.checked_mul(MIB)
}

/// `1200M`, `1.50G`, `332K` as bytes. Slurm's unit without a suffix is the mebibyte.
pub(super) fn memory(text: &str) -> Option<u64> {
    let (digits, unit) = match text.trim().split_at_checked(text.trim().len().checked_sub(1)?)? {
        (digits, "K") => (digits, 1_u64 << 10),
        (digits, "M") => (digits, MIB),
        (digits, "G") => (digits, 1 << 30),
        (digits, "T") => (digits, 1 << 40),
        (digits, "P") => (digits, 1 << 50),
        _ => (text.trim(), MIB),
    };
    if let Ok(whole) = digits.parse::<u64>() {
        return whole.checked_mul(unit);
    }
    let is_decimal = digits.bytes().all(|byte| byte.is_ascii_digit() || byte == b'.');
    let bytes = digits.parse::<f64>().ok().filter(|_| is_decimal)? * unit as f64;
    #[expect(
        clippy::cast_possible_truncation,
        clippy::cast_sign_loss,
        reason = "digits and a point are not negative, and more than 2^60 is rejected"
    )]
    (bytes < (1_u64 << 60) as f64).then_some(bytes as u64)
}

/// Slurm reports accelerators as a total (`gpu`), by type (`gpu:a100`), or both.
#[derive(Default)]
struct Found {
    resources: Resources,
    typed: Option<u32>,
}

impl Found {
    fn gpus(&mut self, gres: Option<&str>, count: Option<u32>) {
        match gres {
            Some("gpu") => self.resources.gpus = count,
            Some(typed) if typed.starts_with("gpu:") => {
                self.typed = count.map(|count| self.typed.unwrap_or(0).saturating_add(count));
            }
            _ => {}
        }
    }

    fn done(self) -> Resources {
        Resources { gpus: self.resources.gpus.or(self.typed), ..self.resources }
    }
}

/// Count and indexes of the accelerators in `gpu:tesla:2(IDX:0-1),gpu:v100:1(IDX:3)` of one node.
pub(super) fn gpus(gres: &str) -> (Option<u32>, Box<str>) {
    let (mut count, mut indexes) = (None, Vec::new());
    for (part, index) in gres.split(')').filter_map(|part| {
        let part = part.trim_start_matches(',');
        part.split_once("(IDX:").or_else(|| part.split_once('('))
    }) {
        let mut fields = part.split(':');
        if fields.next() != Some("gpu") {
            continue;
        }
        let number = fields.next_back().and_then(|number| number.parse::<u32>().ok());
        if let Some(number) = number {
            count = Some(count.unwrap_or(0_u32).saturating_add(number));
        }
        let is_list = |c: char| c.is_ascii_digit() || matches!(c, ',' | '-');
        if !index.is_empty() && index.chars().all(is_list) {
            indexes.push(index);
        }
    }
    (count, indexes.join(",").into())
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    #[test]
    fn texts() {
        let resources = of_text("billing=4,cpu=4,gres/gpu:a100=1,gres/gpu=4,mem=1200M,node=2");
        assert_eq!(resources.cpus, Some(4));
        assert_eq!(resources.nodes, Some(2));
        assert_eq!(resources.memory_bytes, Some(1200 << 20));
        assert_eq!(resources.gpus, Some(4));
        assert_eq!(of_text("gres/gpu:a100=1,gres/gpu:v100=2,gres/gpumem=80G").gpus, Some(3));
        assert_eq!(of_text(""), Resources::default());
        assert_eq!(of_text("cpu=x,mem=,node=-1"), Resources::default());
    }

    #[test]
    fn amounts_of_memory() {
        assert_eq!(memory("332K"), Some(332 << 10));
        assert_eq!(memory("1.50G"), Some(3 << 29));
        assert_eq!(memory("4000"), Some(4000 << 20));
        for text in ["", "x", "-1M", "1e9G", "99999999999999P", "é"] {
            assert_eq!(memory(text), None, "{text}");
        }
    }

    #[test]
    fn accelerators_of_a_node() {
        assert_eq!(gpus("gpu:tesla:1(IDX:0)"), (Some(1), "0".into()));
        assert_eq!(gpus("gpu:2(IDX:0-1),mps:0(IDX:)"), (Some(2), "0-1".into()));
        assert_eq!(gpus("gpu:a:1(IDX:0),gpu:b:1(IDX:3)"), (Some(2), "0,3".into()));
        assert_eq!(gpus(""), (None, "".into()));
        assert_eq!(gpus("gpu:0(IDX:N/A)"), (Some(0), "".into()));
    }

    proptest! {
        #[test]
        fn no_text_panics(text in ".{0,40}", gres in "[gpu:0-9(IDX),-]{0,40}") {
            of_text(&text);
            memory(&text);
            gpus(&gres);
        }
    }
}
