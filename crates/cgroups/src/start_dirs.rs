//! Start directories of the layouts, by the configuration and the links that OAR creates.

use crate::directories::facts::Facts;
use crate::job_cgroup_names::{LayoutRoot, Rule};
use crate::{Config, Hierarchies, SearchedPlace};
use kernel::user_files::uid_of;
use kernel::{NodeKind, NodeStat, Root};
use model::ClusterId;

/// Maximum number of links in one path.
const LINKS_MAX: usize = 40;

/// Directory of OAR 2's links to the hierarchies, one per controller.
const OAR_LINKS: &str = "dev/oar_cgroups_links";

/// The layouts with their start directories, the places to report, and the trusted users besides root.
#[derive(Debug, Default)]
pub(crate) struct Places {
    pub(crate) places: Vec<LayoutRoot>,
    pub(crate) looked: Vec<SearchedPlace>,
    pub(crate) trusted: Vec<u32>,
}

/// The state that the places depend on besides the configuration and the hierarchies: while it is unchanged,
/// so are they.
pub(crate) type Fingerprint = [Option<NodeStat>; 3];

/// The state of OAR's links and of the accounts.
pub(crate) fn fingerprint(root: &Root) -> Fingerprint {
    ["dev/cpuset", OAR_LINKS, "etc/passwd"].map(|path| root.stat(path).ok())
}

impl Places {
    /// Finds the places; the machine's links may have changed since the last call.
    pub(crate) fn find(
        config: &Config,
        root: &Root,
        facts: &Facts,
        hierarchies: &Hierarchies,
    ) -> Self {
        let mut found = Self { trusted: config.scheduler_uids.clone(), ..Self::default() };
        if let Some(oar) = &config.oar {
            found.trusted.extend(account(root, "oar"));
            if oar.roots.is_empty() {
                found.add_oar(&oar.cluster, &["oar".into()]);
                found.add_oar(&oar.cluster, &["oar.slice".into()]);
                for prefix in oar_links(root, facts, hierarchies) {
                    found.add_oar(&oar.cluster, &prefix);
                }
            }
            for given in &oar.roots {
                if let Some(prefix) = found.given(&oar.cluster, given, root, facts, hierarchies) {
                    found.add_oar(&oar.cluster, &prefix);
                }
            }
        }
        if let Some(slurm) = &config.slurm {
            if slurm.roots.is_empty() {
                found.add(&slurm.cluster, &[], Rule::Slurm);
            }
            for given in &slurm.roots {
                if let Some(prefix) = found.given(&slurm.cluster, given, root, facts, hierarchies) {
                    found.add(&slurm.cluster, &prefix, Rule::SlurmInside);
                }
            }
        }
        if let Some(cluster) = &config.local {
            found.add(cluster, &[], Rule::Local { runs: config.runs });
        }
        for pattern in &config.patterns {
            found.add(pattern.cluster(), &[], Rule::Pattern(pattern.clone()));
        }
        if config.units {
            let units =
                LayoutRoot { cluster: ClusterId::local(), prefix: Vec::new(), rule: Rule::Units };
            found.places.push(units);
        }
        found
    }

    fn add_oar(&mut self, cluster: &ClusterId, prefix: &[Box<str>]) {
        let stem = prefix.last().and_then(|name| name.strip_suffix(".slice")).map(Into::into);
        self.add(cluster, prefix, Rule::Oar { stem });
    }

    fn add(&mut self, cluster: &ClusterId, prefix: &[Box<str>], rule: Rule) {
        let path = match &rule {
            Rule::Slurm => "slurm*, *slurmstepd.scope, system.slice/*slurmstepd.scope".to_owned(),
            Rule::Local { .. } => "jobmeter".to_owned(),
            Rule::Pattern(pattern) => pattern.text().to_owned(),
            Rule::Oar { .. } | Rule::SlurmInside | Rule::Units => prefix.join("/"),
        };
        let looked = SearchedPlace { cluster: cluster.clone(), path, in_hierarchy: true };
        // Several links to one directory, and one path in several hierarchies, are one place.
        if !self.looked.contains(&looked) {
            self.looked.push(looked);
            self.places.push(LayoutRoot { cluster: cluster.clone(), prefix: prefix.into(), rule });
        }
    }

    /// The path of a configured root below its hierarchy's root; `None`, after adding it to `looked`,
    /// if it is outside.
    fn given(
        &mut self,
        cluster: &ClusterId,
        given: &str,
        root: &Root,
        facts: &Facts,
        hierarchies: &Hierarchies,
    ) -> Option<Vec<Box<str>>> {
        let prefix = prefix(given, root, facts, hierarchies);
        if prefix.is_none() {
            let path = given.to_owned();
            self.looked.push(SearchedPlace { cluster: cluster.clone(), path, in_hierarchy: false });
        }
        prefix
    }
}

fn oar_links(root: &Root, facts: &Facts, hierarchies: &Hierarchies) -> Vec<Vec<Box<str>>> {
    let mut links = vec!["dev/cpuset".to_owned()];
    // Most machines lack this directory.
    root.list(OAR_LINKS, |entry| links.push(format!("{OAR_LINKS}/{}", entry.name))).ok();
    links.sort_unstable();
    links
        .iter()
        .filter_map(|link| prefix(&format!("{link}/oar"), root, facts, hierarchies))
        .collect()
}

/// The path of a directory below its hierarchy's root, whether or not it exists.
fn prefix(
    path: &str,
    root: &Root,
    facts: &Facts,
    hierarchies: &Hierarchies,
) -> Option<Vec<Box<str>>> {
    let resolved = resolve(path, root, facts)?;
    let below = hierarchies.below_mount(&resolved)?;
    Some(below.split('/').filter(|part| !part.is_empty()).map(Into::into).collect())
}

/// Resolves the links of a path; missing components are kept. Links that root does not own are not
/// followed.
fn resolve(path: &str, root: &Root, facts: &Facts) -> Option<String> {
    let mut waiting: Vec<String> = path.split('/').rev().map(str::to_owned).collect();
    let mut done = String::new();
    let mut links = 0;
    while let Some(part) = waiting.pop() {
        match part.as_str() {
            "" | "." => continue,
            ".." => {
                done.truncate(done.rfind('/').unwrap_or(0));
                continue;
            }
            _ => {}
        }
        let next = if done.is_empty() { part } else { format!("{done}/{part}") };
        match facts.of(root, &next) {
            Ok(fact) if fact.kind == NodeKind::Link => {
                links += 1;
                if fact.uid != 0 || links > LINKS_MAX {
                    return None;
                }
                let target = root.read_link(&next).ok()?;
                if target.starts_with('/') {
                    done.clear();
                }
                waiting.extend(target.split('/').rev().map(str::to_owned));
            }
            _ => done = next,
        }
    }
    Some(done)
}

/// The user ID of an account in `/etc/passwd`.
fn account(root: &Root, name: &str) -> Option<u32> {
    let mut text = Vec::new();
    root.read("etc/passwd", &mut text).ok()?;
    uid_of(&text, name)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::LayoutConfig;
    use std::path::Path;

    fn tree() -> (tempfile::TempDir, Root) {
        let dir = tempfile::tempdir().unwrap();
        let at = |path: &str| dir.path().join(path);
        for path in [
            "proc",
            "etc",
            "dev/oar_cgroups_links",
            "sys/fs/cgroup/cpuset/dock/n1",
            "home",
            ".jobmeter",
        ] {
            std::fs::create_dir_all(at(path)).unwrap();
        }
        let mounts = "cgroup /sys/fs/cgroup/cpuset cgroup rw,cpuset 0 0\n\
            cgroup /sys/fs/cgroup/memory cgroup rw,memory 0 0\n";
        std::fs::write(at("proc/mounts"), mounts).unwrap();
        std::fs::write(at("etc/passwd"), "root:x:0:0::/:\noar:x:107:113::/var/lib/oar:\n").unwrap();
        let link = |target: &str, path: &str| std::os::unix::fs::symlink(target, at(path)).unwrap();
        link("/sys/fs/cgroup/cpuset/dock/n1", "dev/oar_cgroups_links/cpuset");
        link("../sys/fs/cgroup/cpuset", "dev/cpuset");
        link("/sys/fs/cgroup/memory", "home/users");
        link("loop", "home/loop");
        std::fs::write(at(".jobmeter/owners"), "1000 1 home/users\n").unwrap();
        let root = Root::recorded(Path::new(dir.path())).unwrap();
        (dir, root)
    }

    fn find(config: &Config, root: &Root) -> Places {
        let mut facts = Facts::default();
        facts.refresh(root);
        Places::find(config, root, &facts, &Hierarchies::read(root).unwrap())
    }

    fn oar_places(roots: &[&str], root: &Root) -> Vec<(String, bool)> {
        let mut config = Config { slurm: None, local: None, units: false, ..Config::default() };
        config.oar = Some(LayoutConfig {
            cluster: ClusterId::new("oar").unwrap(),
            roots: roots.iter().map(|root| (*root).to_owned()).collect(),
        });
        find(&config, root)
            .looked
            .into_iter()
            .map(|looked| (looked.path, looked.in_hierarchy))
            .collect()
    }

    #[test]
    fn defaults_and_the_links_of_oar() {
        let (_dir, root) = tree();
        let expected = ["oar", "oar.slice", "dock/n1/oar"].map(|path| (path.to_owned(), true));
        assert_eq!(oar_places(&[], &root), expected);
        assert_eq!(find(&Config::default(), &root).trusted, [107]);
    }

    #[test]
    fn a_given_root_replaces_the_defaults() {
        let (_dir, root) = tree();
        let given = [
            "/dev/cpuset/oar/",
            "/sys/fs/cgroup/memory/site",
            "/sys/fs/cgroup/cpuset/oar",
            "/nowhere/oar",
        ];
        let expected = [("oar", true), ("site", true), ("/nowhere/oar", false)];
        assert_eq!(
            oar_places(&given, &root),
            expected.map(|(path, there)| (path.to_owned(), there))
        );
    }

    #[test]
    fn links_of_users_and_loops_are_not_followed() {
        let (_dir, root) = tree();
        for given in ["/home/users/oar", "/home/loop/oar"] {
            assert_eq!(oar_places(&[given], &root), [(given.to_owned(), false)], "{given}");
        }
    }

    #[test]
    fn the_prefix_of_slices_is_that_of_their_root() {
        let (_dir, root) = tree();
        let mut config = Config::default();
        config.oar.as_mut().unwrap().roots = vec!["/sys/fs/cgroup/cpuset/site.slice".to_owned()];
        let places = find(&config, &root).places;
        let Rule::Oar { stem } = &places[0].rule else { panic!() };
        assert_eq!(stem.as_deref(), Some("site"));
    }
}
