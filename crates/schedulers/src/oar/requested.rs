//! A job's request: levels such as `/network_address=2/core=4`, several joined by `+`.

use model::Resources;

/// The level names of a node, a core and an accelerator.
const NODE: [&str; 3] = ["network_address", "host", "nodes"];
const CORE: [&str; 2] = ["core", "resource_id"];
const GPU: [&str; 3] = ["gpu", "gpudevice", "gpunum"];

/// A request, summed over its groups.
#[derive(Clone, Debug, Default)]
pub(crate) struct Requested {
    nodes: Option<u32>,
    cpus: Option<u32>,
    gpus: Option<u32>,
}

impl Requested {
    /// Adds a group: its levels, outermost first. A number below 1 means "all" or "best": the count is then unknown.
    pub(crate) fn add<'a>(&mut self, levels: impl IntoIterator<Item = (&'a str, i64)>) {
        let mut product = Some(1_u32);
        for (level, count) in levels {
            let count = u32::try_from(count).ok().filter(|count| *count > 0);
            product = product.zip(count).and_then(|(product, count)| product.checked_mul(count));
            let total = match level {
                level if NODE.contains(&level) => &mut self.nodes,
                level if CORE.contains(&level) => &mut self.cpus,
                level if GPU.contains(&level) => &mut self.gpus,
                _ => continue,
            };
            *total = product.map(|product| total.unwrap_or(0).saturating_add(product)).or(*total);
        }
    }

    /// Adds a request in OAR's text form: `-l "{type = 'default'}/network_address=1/core=2+/core=1,walltime=1:0:0"`.
    pub(crate) fn add_text(&mut self, text: &str) {
        for group in groups(text) {
            let (property, levels) = match group.split_once('}') {
                Some((property, levels)) => (property, levels),
                None => ("", group),
            };
            if of_nodes(property) {
                let levels = levels.split('/').filter_map(|level| level.split_once('='));
                self.add(levels.map(|(name, count)| {
                    let digits = count.split(',').next().unwrap_or_default().trim();
                    (name.trim(), digits.parse().unwrap_or(0))
                }));
            }
        }
    }

    /// The requested resources with the requested time, in seconds.
    pub(crate) fn resources(&self, wall_seconds: Option<f64>) -> Resources {
        let Self { nodes, cpus, gpus } = *self;
        Resources { nodes, cpus, gpus, wall_seconds, ..Resources::default() }
    }
}

/// Whether a property selects nodes. Disks and licences have another `type`.
pub(crate) fn of_nodes(property: &str) -> bool {
    let types = property.match_indices("type").filter_map(|(at, word)| {
        let rest = property.get(at + word.len()..)?.trim_start().strip_prefix('=')?;
        rest.trim_start().strip_prefix('\'')?.split('\'').next()
    });
    types.into_iter().all(|name| name == "default")
}

/// The groups of a text: separated by `+`, except within quotes or braces. Of several alternatives (`-l … -l
/// …`), the first counts.
fn groups(text: &str) -> Vec<&str> {
    let text = text.trim().strip_prefix("-l").unwrap_or(text).trim_start();
    let text = text.strip_prefix('"').map_or(text, |text| text.split('"').next().unwrap_or(text));
    let (mut depth, mut from, mut groups) = (0_u32, 0, Vec::new());
    for (at, c) in text.char_indices() {
        match c {
            '{' => depth += 1,
            '}' => depth = depth.saturating_sub(1),
            '+' if depth == 0 => {
                groups.extend(text.get(from..at));
                from = at + 1;
            }
            _ => {}
        }
    }
    groups.extend(text.get(from..));
    groups
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    fn text(text: &str) -> (Option<u32>, Option<u32>, Option<u32>) {
        let mut requested = Requested::default();
        requested.add_text(text);
        (requested.nodes, requested.cpus, requested.gpus)
    }

    #[test]
    fn levels_multiply_and_groups_add_up() {
        let one = "-l \"{type = 'default'}/network_address=2/core=4,walltime=0:5:0\" ";
        assert_eq!(text(one), (Some(2), Some(8), None));
        let two =
            "-l \"{type = 'default'}/host=1/gpu=2/core=3+{(a='+') AND type='default'}/core=1\"";
        assert_eq!(text(two), (Some(1), Some(7), Some(2)));
        let disk = "-l \"{type = 'disk'}/host=1/disk=3+{type = 'default'}/resource_id=1\"";
        assert_eq!(text(disk), (None, Some(1), None));
        // All that exist.
        assert_eq!(text("-l \"/network_address=1/core=ALL\""), (Some(1), None, None));
        let two = "-l \"/core=1\" -l \"/core=2\"";
        assert_eq!(text(two), (None, Some(1), None));
        assert_eq!(text(""), (None, None, None));
    }

    #[test]
    fn rows_of_the_database() {
        let mut requested = Requested::default();
        requested.add([("network_address", 3), ("core", -1)]);
        requested.add([("cpu", 2), ("core", 5)]);
        let sum = requested.resources(Some(300.0));
        assert_eq!((sum.nodes, sum.cpus, sum.wall_seconds), (Some(3), Some(10), Some(300.0)));
        assert!(of_nodes("(desktop_computing = 'NO') AND drain='NO'") && !of_nodes("type='disk'"));
    }

    proptest! {
        #[test]
        fn no_text_panics(any in ".{0,60}") {
            text(&any);
            of_nodes(&any);
        }
    }
}
