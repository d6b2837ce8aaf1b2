//! The path of a series in Graphite. It never changes: it depends on the series alone.

use model::Series;

/// Longest component of a path, in bytes: it becomes the name of a file, which may have 255.
const COMPONENT_BYTES_MAX: usize = 200;

/// The path of a series: `DEVICE.METRIC[.job.CLUSTER.ID][.LABEL.VALUE]...`. A part that Carbon cannot take as it is has a
/// checksum, so that two series keep two paths.
pub fn path_of(series: &Series) -> String {
    let Series { device, metric, job, labels } = series;
    let mut path = String::new();
    write_unique(device.as_str(), &mut path);
    path.push('.');
    write_unique(metric, &mut path);
    if let Some(job) = job {
        path.push_str(".job.");
        write_unique(job.cluster.as_str(), &mut path);
        path.push_str(&format!(".{}", job.id.get()));
    }
    for (label, value) in labels.pairs() {
        for part in [label, value] {
            path.push('.');
            write_unique(&part, &mut path);
        }
    }
    path
}

/// Appends parts as FrUCToSA's paths have them, with `_` for each character that Carbon cannot take.
pub(crate) fn write_path(parts: &[&str], path: &mut String) {
    for (number, part) in parts.iter().enumerate() {
        if number > 0 {
            path.push('.');
        }
        write_component(part, path);
    }
}

/// Appends a component. If that changes the text, a checksum of it follows.
fn write_unique(text: &str, path: &mut String) {
    let begin = path.len();
    write_component(text, path);
    if path.get(begin..) != Some(text) {
        path.push_str(&format!("-{:08x}", checksum(text)));
    }
}

/// Appends a component without dots: `_` stands for each character that Carbon, Graphite or a file name cannot take.
fn write_component(text: &str, path: &mut String) {
    let letters = text.chars().take(COMPONENT_BYTES_MAX);
    path.extend(letters.map(|letter| if is_plain(letter) { letter } else { '_' }));
    if text.is_empty() {
        path.push('_');
    }
}

/// Whether Carbon and Graphite take it in a component. The others divide components and words, are wildcards and quotes of
/// queries, or differ between file systems.
pub(crate) const fn is_plain(letter: char) -> bool {
    letter.is_ascii_alphanumeric() || matches!(letter, '_' | '-' | ':')
}

/// FNV-1a: paths never change with a version of ours or of a library.
fn checksum(text: &str) -> u32 {
    text.bytes().fold(0x811c_9dc5, |sum, byte| (sum ^ u32::from(byte)).wrapping_mul(0x0100_0193))
}

#[cfg(test)]
mod tests {
    use super::*;
    use model::{ClusterId, DeviceId, JobId, JobKey, Labels};
    use proptest::prelude::*;

    fn series(device: &str, job: Option<i64>, labels: &[(&str, &str)]) -> Series {
        let job = job.map(|id| JobKey {
            cluster: ClusterId::new("oar.a").unwrap(),
            id: JobId::new(id).unwrap(),
        });
        let labels = Labels::new(labels.iter().copied()).unwrap();
        Series { device: DeviceId::new(device).unwrap(), metric: "load_1m".into(), job, labels }
    }

    #[test]
    fn paths_of_series() {
        for (series, path) in [
            (series("n1", None, &[]), "n1.load_1m"),
            (series("n1", Some(7), &[("cpu", "0")]), "n1.load_1m.job.oar_a-f81bd428.7.cpu.0"),
            (series("n1.site", None, &[]), "n1_site-4f43eeb9.load_1m"),
            (series("n1", None, &[("mount", "/home")]), "n1.load_1m.mount._home-1bb72df1"),
            (series("n1", None, &[("mount", "../..")]), "n1.load_1m.mount._____-ff09c962"),
            (series("n1", None, &[("a", "")]), "n1.load_1m.a._-811c9dc5"),
        ] {
            assert_eq!(path_of(&series), path);
        }
    }

    proptest! {
        #[test]
        fn a_path_has_the_components_of_its_series(
            job in proptest::option::of(1_i64..99),
            labels in proptest::collection::btree_map("\\PC{1,9}", "\\PC{0,300}", 0..4),
        ) {
            let pairs: Vec<_> = labels.iter().map(|(key, value)| (&**key, &**value)).collect();
            let path = path_of(&series("n1", job, &pairs));
            let parts: Vec<&str> = path.split('.').collect();
            prop_assert!(path.starts_with("n1.load_1m"));
            prop_assert_eq!(parts.len(), 2 + 3 * usize::from(job.is_some()) + 2 * pairs.len());
            for part in parts {
                prop_assert!(!part.is_empty() && part.len() <= 255 - ".wsp".len());
                prop_assert!(part.chars().all(is_plain));
            }
        }

        #[test]
        fn two_texts_are_two_components(a in "[a-c./ é_-]{0,4}", b in "[a-c./ é_-]{0,4}") {
            let component = |text: &str| {
                let mut out = String::new();
                write_unique(text, &mut out);
                out
            };
            prop_assert_eq!(a == b, component(&a) == component(&b));
        }
    }
}
