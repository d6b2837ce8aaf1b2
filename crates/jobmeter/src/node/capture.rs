//! `jobmeter capture`: records the files that one or all sources read, as a folder for tests and maintainers
//! (`--root`). Names of this machine, its users and its servers, and addresses are replaced.

mod new_folder;
mod scrub;

use crate::node::agent_file::why_off;
use crate::node::probe::{Probe, ProbedMachine};
use crate::node::sources_of_node::jobs_of;
use agent::SourcePlan;
use anyhow::{Context as _, bail};
use cgroups::Jobs;
use kernel::process::whole_entries;
use kernel::{ReadError, Root};
use new_folder::NewFolder;
use scrub::{Scrub, tcp};
use std::collections::{BTreeMap, BTreeSet};
use std::fs;
use std::io::{self, Write as _};
use std::path::Path;
use std::time::Duration;

/// Files of every recorded machine: its boot time and its mounts.
const ALWAYS: [&str; 2] = ["proc/stat", "proc/self/mounts"];

/// Processor time limit of one reading; large, because a capture is not urgent.
const READING_MAX: Duration = Duration::from_secs(10);

/// Maximum number of bytes of a file that the kernel reads from the memory of a process, as sources read it.
const MEMORY_FILE_BYTES_MAX: usize = 128 * 1024;

/// The file with the states of the sources.
const STATES: &str = ".jobmeter/sources";

/// Runs sources on a recording root as an agent would, and copies the files they read to the new folder `out`, with
/// each source's state. A source that is disabled in the settings is read if it is the only one.
///
/// # Errors
/// `out` exists, the only requested source yields nothing, or a file cannot be written.
pub(crate) fn capture(
    sources: &[SourcePlan],
    find: cgroups::Config,
    probed_machine: &ProbedMachine,
    out: &Path,
    json: bool,
) -> anyhow::Result<()> {
    // Before the sources are read, which takes seconds: another user could create it meanwhile.
    let folder = NewFolder::create(out)?;
    let recorded = record(sources, find, probed_machine, &folder);
    if recorded.is_err() {
        // Removes only an empty folder, so that the command can be repeated.
        fs::remove_dir(out).ok();
    }
    let written = recorded?;
    if json {
        let answer = serde_json::json!({ "folder": out, "files": written });
        return Ok(writeln!(io::stdout().lock(), "{answer}")?);
    }
    crate::client::plain::note(&format!(
        "{written} files are in {}; read them before you send them anywhere",
        out.display()
    ))?;
    Ok(())
}

/// Reads the sources, and writes what they read; returns the number of files.
fn record(
    sources: &[SourcePlan],
    find: cgroups::Config,
    probed_machine: &ProbedMachine,
    out: &NewFolder,
) -> anyhow::Result<usize> {
    let root = &probed_machine.root;
    let jobs = jobs_of(root, find, crate::clock());
    let mut states = String::new();
    let is_alone = sources.len() == 1;
    for source in sources {
        let name = source.spec.name;
        if !source.enabled && !is_alone {
            states.push_str(&format!("{name}: off: {}\n", why_off(source)));
            continue;
        }
        match read(source, probed_machine, &jobs) {
            Ok(samples) => states.push_str(&format!("{name}: {samples} samples\n")),
            Err(error) if !is_alone => states.push_str(&format!("{name}: {error:#}\n")),
            Err(error) => return Err(error),
        }
    }
    let scrub = Scrub::of(root);
    let mut paths: BTreeSet<String> = root.paths_read().into_iter().collect();
    paths.extend(ALWAYS.map(str::to_owned));
    let links = Links::of(root, &paths);
    let mut written = 0_usize;
    for path in &paths {
        written += usize::from(copy(root, path, &scrub, &links, out)?);
    }
    for path in &paths {
        link(root, path, &scrub, &links, out)?;
    }
    match cgroups::recorded_owners(root, &root.paths_read()) {
        Ok(owners) => out.write(".jobmeter/owners", &scrub.bytes(owners.as_bytes()))?,
        // A recorded machine may lack its mounts.
        Err(error) if error.is_absent() => {}
        Err(error) => return Err(error.into()),
    }
    for (path, bytes) in root.replies() {
        out.write(&scrub.text(&path), &scrub.bytes(&bytes))?;
        written += 1;
    }
    if written == 0 {
        bail!("the sources read nothing that can be recorded");
    }
    out.write(STATES, &scrub.bytes(states.as_bytes()))?;
    Ok(written)
}

/// Opens a source and reads it once; returns the number of samples.
fn read(source: &SourcePlan, probed_machine: &ProbedMachine, jobs: &Jobs) -> anyhow::Result<usize> {
    let mut probe = Probe::open(source.spec, &source.options, probed_machine);
    probe.read(probed_machine, jobs, READING_MAX);
    match probe.failed() {
        Some(error) => Err(error.clone()).with_context(|| format!("source {}", source.spec.name)),
        None => Ok(probe.sink().len()),
    }
}

/// Directory links that sources read both as links and as parts of paths. Both must work on the recorded
/// machine, so files are written at the target of the link.
#[derive(Default)]
struct Links(BTreeMap<String, String>);

impl Links {
    fn of(root: &Root, paths: &BTreeSet<String>) -> Self {
        let target =
            |path: &String| Some((path.clone(), joined(path, &root.read_link(path).ok()?)?));
        Self(paths.iter().filter_map(target).collect())
    }

    /// Resolves the directory links in a path. If the path itself is a link, the last component is not resolved.
    fn resolve(&self, path: &str) -> String {
        let mut path = path.to_owned();
        // The kernel's limit of followed links (path_resolution(7)).
        for _ in 0..40 {
            let through = path
                .match_indices('/')
                .find_map(|(end, _)| Some((end, self.0.get(path.get(..end)?)?)));
            let Some((end, target)) = through else { break };
            path = format!("{target}{}", path.get(end..).unwrap_or_default());
        }
        path
    }
}

/// The target of a relative link, from the root; `None` if the target is absolute or outside of the root.
fn joined(link: &str, target: &str) -> Option<String> {
    let mut parts: Vec<&str> = link.split('/').collect();
    parts.pop();
    if target.starts_with('/') {
        return None;
    }
    for part in target.split('/').filter(|part| !part.is_empty() && *part != ".") {
        match part {
            ".." => drop(parts.pop()?),
            name => parts.push(name),
        }
    }
    Some(parts.join("/"))
}

/// Records the target of a directory link. Does nothing if a file or directory exists at this path.
fn link(
    root: &Root,
    path: &str,
    scrub: &Scrub,
    links: &Links,
    out: &NewFolder,
) -> anyhow::Result<()> {
    let Ok(target) = root.read_link(path) else { return Ok(()) };
    out.link(&scrub.text(&links.resolve(path)), &scrub.text(&target))
}

fn copy(
    root: &Root,
    path: &str,
    scrub: &Scrub,
    links: &Links,
    out: &NewFolder,
) -> anyhow::Result<bool> {
    // A requested file that is missing, or that is a directory, is recorded by its absence.
    let Ok(mut bytes) = contents(root, path) else { return Ok(false) };
    match path {
        "etc/passwd" => bytes = schedulers(&bytes),
        "proc/net/tcp" | "proc/net/tcp6" => bytes = tcp(&bytes),
        _ if memory_file(path).is_some_and(|(_, name)| name == "environ") => {
            bytes = of_gpus(&bytes);
        }
        _ => {}
    }
    // Its records have a fixed length, which text replacement would change.
    if path == "var/run/utmp" {
        out.write(path, &kernel::utmp::without_names(&bytes))?;
        return Ok(true);
    }
    out.write(&scrub.text(&links.resolve(path)), &scrub.bytes(&bytes))?;
    Ok(true)
}

/// Reads a file. Its time is limited if a user can block it.
fn contents(root: &Root, path: &str) -> Result<Vec<u8>, ReadError> {
    let read = match memory_file(path) {
        Some((pid, "environ")) => root.environment(pid, MEMORY_FILE_BYTES_MAX),
        Some((pid, _)) => root.command_line(pid, MEMORY_FILE_BYTES_MAX),
        None => {
            let mut bytes = Vec::new();
            return root.read(path, &mut bytes).map(|()| bytes);
        }
    };
    let (bytes, is_whole) = read?;
    Ok(if is_whole { bytes } else { whole_entries(&bytes).to_vec() })
}

/// The process and the name of a file that the kernel reads from the memory of the process.
fn memory_file(path: &str) -> Option<(u32, &str)> {
    let (pid, name) = path.strip_prefix("proc/")?.split_once('/')?;
    matches!(name, "environ" | "cmdline").then_some((pid.parse().ok()?, name))
}

/// The lines of `/etc/passwd` for discovery: accounts whose directories contain jobs, and no others.
fn schedulers(passwd: &[u8]) -> Vec<u8> {
    let kept = |line: &&[u8]| {
        ["root:", "oar:", "slurm:"].iter().any(|name| line.starts_with(name.as_bytes()))
    };
    passwd.split_inclusive(|byte| *byte == b'\n').filter(kept).flatten().copied().collect()
}

/// The variables of a process with the GPUs of its job. Other variables may contain passwords.
fn of_gpus(environ: &[u8]) -> Vec<u8> {
    let kept = |pair: &&[u8]| {
        ["SLURM_JOB_GPUS=", "SLURM_STEP_GPUS=", "CUDA_VISIBLE_DEVICES="]
            .iter()
            .any(|name| pair.starts_with(name.as_bytes()))
    };
    environ.split_inclusive(|byte| *byte == 0).filter(kept).flatten().copied().collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn write(file: &Path, bytes: &[u8]) {
        fs::create_dir_all(file.parent().unwrap()).unwrap();
        fs::write(file, bytes).unwrap();
    }

    /// A new folder for a report, and its path.
    fn report(within: &tempfile::TempDir) -> (NewFolder, std::path::PathBuf) {
        let path = within.path().join("report");
        (NewFolder::create(&path).unwrap(), path)
    }

    /// Captures from a recorded machine with these agent settings; returns the reported states of the sources.
    fn captured(from: &Path, settings: &str, out: &Path) -> String {
        let dir = tempfile::tempdir().unwrap();
        let file = dir.path().join("agent.toml");
        fs::write(&file, settings).unwrap();
        let file = config::ConfigFile::Given(file);
        let given = config::ConfigInputs { file, environment: &|_| None, flags: Vec::new() };
        let config = agent::load(&given).unwrap().config;
        let plan = agent::plan(&config, None).unwrap();
        let find = agent::discovery(&config).unwrap();
        let probed_machine =
            ProbedMachine::new(Root::recorded(from).unwrap().recording(), "n1").unwrap();
        capture(&plan.sources, find, &probed_machine, out, false).unwrap();
        fs::read_to_string(out.join(STATES)).unwrap()
    }

    #[test]
    fn configured_sources_of_the_agent_are_captured() {
        let host = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../testdata/hosts/bare-6.18/1");
        let to = tempfile::tempdir().unwrap();
        let settings = "[sources.disk]\nenabled = false\n[sources.pressure]\noptional = true\n\
                        [sources.cpu]\ncores = true\n";
        let [plain, present] = ["", settings].map(|settings| {
            let out = to.path().join(if settings.is_empty() { "plain" } else { "given" });
            captured(&host, settings, &out)
        });
        let samples = |states: &str, name: &str| -> usize {
            let line = states.lines().find_map(|line| line.strip_prefix(name)).unwrap();
            line.trim_end_matches(" samples").parse().unwrap()
        };
        assert!(samples(&present, "cpu: ") > samples(&plain, "cpu: "), "{present}");
        assert!(samples(&plain, "disk: ") > 0 && samples(&plain, "pressure: ") > 0, "{plain}");
        assert!(present.contains("\ndisk: off: sources.disk.enabled is false\n"), "{present}");
        assert!(present.contains("\npressure: off: sources.pressure is optional"), "{present}");
        let is_there = |path: &str| to.path().join(path).try_exists().unwrap();
        assert!(is_there("plain/proc/diskstats") && !is_there("given/proc/diskstats"));
        assert!(is_there("plain/proc/pressure/cpu") && !is_there("given/proc/pressure/cpu"));
    }

    #[test]
    fn a_capture_gives_the_same_values_again() {
        let hosts = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../testdata/hosts");
        for host in ["bare-6.18", "sensors-intel", "gpu-node", "slurm-v1"] {
            let to = tempfile::tempdir().unwrap();
            let read_into = |from: &Path, name: &str| {
                let out = to.path().join(name);
                (captured(from, "", &out), out)
            };
            let (first, out) = read_into(&hosts.join(host).join("1"), "first");
            let (second, _) = read_into(&out, "second");
            assert_eq!(first, second, "{host}");
            let present = first.lines().filter(|line| !line.contains("absent")).count();
            assert!(present >= 3, "{host}: {first}");
        }
    }

    #[test]
    fn of_an_environment_only_gpus_are_kept() {
        let (from, to) = (tempfile::tempdir().unwrap(), tempfile::tempdir().unwrap());
        let path = "proc/7/environ";
        write(
            &from.path().join(path),
            b"TOKEN=secret\0SLURM_JOB_GPUS=0,1\0CUDA_VISIBLE_DEVICES=0\0",
        );
        let (out, to) = report(&to);
        let root = Root::recorded(from.path()).unwrap();
        assert!(copy(&root, path, &Scrub::of(&root), &Links::default(), &out).unwrap());
        let kept = fs::read(to.join(path)).unwrap();
        assert_eq!(kept, b"SLURM_JOB_GPUS=0,1\0CUDA_VISIBLE_DEVICES=0\0");
    }

    /// A FIFO without a writer blocks its reader like a process with locked memory.
    #[test]
    fn a_process_that_blocks_its_readers_ends_no_capture() {
        let (from, to) = (tempfile::tempdir().unwrap(), tempfile::tempdir().unwrap());
        let (out, to) = report(&to);
        let root = Root::recorded(from.path()).unwrap();
        for name in ["environ", "cmdline"] {
            fs::create_dir_all(from.path().join("proc/7")).unwrap();
            let fifo = from.path().join("proc/7").join(name);
            let mode = rustix::fs::Mode::from(0o600);
            rustix::fs::mkfifoat(rustix::fs::CWD, &fifo, mode).unwrap();
            let path = format!("proc/7/{name}");
            assert!(!copy(&root, &path, &Scrub::of(&root), &Links::default(), &out).unwrap());
            assert!(!to.join(&path).try_exists().unwrap());
        }
        assert_eq!(kernel::environments_given_up(), 1, "the owner has one reading");
    }

    #[test]
    fn a_link_to_a_directory_is_recorded_as_one() {
        let (from, to) = (tempfile::tempdir().unwrap(), tempfile::tempdir().unwrap());
        let chip = from.path().join("sys/class/hwmon/hwmon0");
        fs::create_dir_all(&chip).unwrap();
        std::os::unix::fs::symlink("../../nvme0", chip.join("device")).unwrap();
        let root = Root::recorded(from.path()).unwrap();
        let scrub = Scrub::of(&root);
        let links = Links::default();
        let (out, to) = report(&to);
        link(&root, "sys/class/hwmon/hwmon0/device", &scrub, &links, &out).unwrap();
        link(&root, "sys/class/hwmon/hwmon0", &scrub, &links, &out).unwrap();
        let recorded = Root::recorded(&to).unwrap();
        assert_eq!(recorded.read_link("sys/class/hwmon/hwmon0/device").unwrap(), "../../nvme0");
    }

    #[test]
    fn a_link_through_which_files_were_read_remains_a_link() {
        let (from, to) = (tempfile::tempdir().unwrap(), tempfile::tempdir().unwrap());
        let device = from.path().join("sys/devices/pci0/nvme0");
        write(&device.join("hwmon0/temp1_input"), b"40000\n");
        let class = from.path().join("sys/class/hwmon");
        fs::create_dir_all(&class).unwrap();
        let symlink = std::os::unix::fs::symlink;
        symlink("../../devices/pci0/nvme0/hwmon0", class.join("hwmon0")).unwrap();
        symlink("../../nvme0", device.join("hwmon0/device")).unwrap();
        let root = Root::recorded(from.path()).unwrap();
        let scrub = Scrub::of(&root);
        let (file, inner) = ("sys/class/hwmon/hwmon0/temp1_input", "sys/class/hwmon/hwmon0/device");
        let (out, to) = report(&to);
        let paths = ["sys/class/hwmon/hwmon0", file, inner].map(str::to_owned).into();
        let links = Links::of(&root, &paths);
        for path in &paths {
            copy(&root, path, &scrub, &links, &out).unwrap();
        }
        for path in &paths {
            link(&root, path, &scrub, &links, &out).unwrap();
        }
        let recorded = Root::recorded(&to).unwrap();
        for path in ["sys/class/hwmon/hwmon0", inner] {
            assert_eq!(recorded.read_link(path).unwrap(), root.read_link(path).unwrap(), "{path}");
        }
        let mut text = Vec::new();
        recorded.read(file, &mut text).unwrap();
        assert_eq!(text, b"40000\n");
    }

    #[test]
    fn links_are_joined_as_the_kernel_follows_them() {
        assert_eq!(joined("a/b/c", "../d").as_deref(), Some("a/d"));
        assert_eq!(joined("a/b", "c/./d").as_deref(), Some("a/c/d"));
        assert_eq!(joined("a/b", "../../d"), None, "it leaves the root");
        assert_eq!(joined("a/b", "/d"), None);
        let looped = Links([("a/b".to_owned(), "a/b".to_owned())].into());
        assert_eq!(looped.resolve("a/b/c"), "a/b/c");
    }

    #[test]
    fn of_the_users_only_schedulers_are_kept() {
        let passwd =
            b"root:x:0:0::/:/bin/sh\nalice:x:1000:1000::/:/bin/sh\noar:x:110:110::/:/bin/sh\n";
        let kept = String::from_utf8(schedulers(passwd)).unwrap();
        assert_eq!(kept, "root:x:0:0::/:/bin/sh\noar:x:110:110::/:/bin/sh\n");
    }
}
