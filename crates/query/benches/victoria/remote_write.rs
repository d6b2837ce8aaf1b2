//! Converts frames to bodies of Prometheus remote write: `WriteRequest{timeseries: [{labels, samples}]}` in
//! protocol buffers, as a snappy block with one literal.

use std::collections::BTreeMap;
use wire::{Decoder, Frames};

/// One request with the samples of some frames, series by series.
pub(crate) fn body(frames: &[Vec<u8>]) -> Vec<u8> {
    let mut request = Vec::new();
    for frame in frames {
        let decoded = Decoder::default().decode(&Frames::of(frame).next().unwrap().unwrap());
        let batch = decoded.unwrap().into_batch().unwrap();
        let mut samples: BTreeMap<u32, Vec<u8>> = BTreeMap::new();
        let mut rows = batch.index.iter().zip(&batch.values);
        for tick in &batch.ticks {
            for (index, value) in rows.by_ref().take(usize::try_from(tick.samples).unwrap()) {
                let mut sample = vec![0x09];
                sample.extend(value.to_le_bytes());
                sample.push(0x10);
                varint(&mut sample, u64::try_from(tick.at.0 / 1000).unwrap());
                message(samples.entry(*index).or_default(), 2, &sample);
            }
        }
        for (index, samples) in samples {
            let entry = batch.table.entries.get(usize::try_from(index).unwrap()).unwrap();
            let mut series = Vec::new();
            label(&mut series, "__name__", &entry.metric.name);
            label(&mut series, "node", entry.device.as_str());
            for (name, value) in entry.labels.pairs() {
                label(&mut series, &name, &value);
            }
            series.extend(samples);
            message(&mut request, 1, &series);
        }
    }
    snappy(&request)
}

fn varint(out: &mut Vec<u8>, mut number: u64) {
    while number >= 0x80 {
        out.push(number.to_le_bytes()[0] | 0x80);
        number >>= 7;
    }
    out.push(number.to_le_bytes()[0]);
}

fn message(out: &mut Vec<u8>, field: u8, bytes: &[u8]) {
    out.push(field << 3 | 2);
    varint(out, bytes.len() as u64);
    out.extend(bytes);
}

fn label(out: &mut Vec<u8>, name: &str, value: &str) {
    let mut label = Vec::new();
    message(&mut label, 1, name.as_bytes());
    message(&mut label, 2, value.as_bytes());
    message(out, 1, &label);
}

fn snappy(bytes: &[u8]) -> Vec<u8> {
    let mut block = Vec::with_capacity(bytes.len() + 16);
    varint(&mut block, bytes.len() as u64);
    // A literal; its length minus 1 follows in 4 bytes.
    block.push(63 << 2);
    block.extend(u32::try_from(bytes.len() - 1).unwrap().to_le_bytes());
    block.extend(bytes);
    block
}
