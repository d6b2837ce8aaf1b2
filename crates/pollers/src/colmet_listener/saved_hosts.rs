//! A file with the hosts and their jobs, beside the spools: so the next start reports the ends of jobs that ended meanwhile, begins
//! no job at another time, and knows which hosts have an agent.
//!
//! ```text
//! jobmeter colmet hosts 1
//! host GROUP AGENT PERIOD LATEST NAME      0 or 1; microseconds
//! job ID START REBASED                     a job of the host above
//! ended ID START STOP                      one of which the end may not be in the spool
//! CHECKSUM                                 of these lines and the poller's name
//! ```

use delivery::{crc32c, replace_private};
use model::{DeviceId, JobId, Timestamp};
use std::fmt::Write as _;
use std::io;
use std::path::Path;

const HEAD: &str = "jobmeter colmet hosts 1";
/// Bytes of a file that is read: that of 16 384 hosts and 65 536 jobs has some 8 MB.
const FILE_BYTES_MAX: u64 = 64 << 20;

/// A host.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct SavedHost {
    pub(super) device: DeviceId,
    pub(super) group: usize,
    pub(super) has_agent: bool,
    /// 0: unknown.
    pub(super) period_us: i64,
    /// Instant of its latest message; 0: none.
    pub(super) latest: Timestamp,
    pub(super) jobs: Vec<SavedJob>,
    pub(super) ended: Vec<SavedEnd>,
}

/// A job that is on the host.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct SavedJob {
    pub(super) id: JobId,
    pub(super) start: Timestamp,
    pub(super) is_rebased: bool,
}

/// The end of a job.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct SavedEnd {
    pub(super) id: JobId,
    pub(super) start: Timestamp,
    pub(super) stop: Timestamp,
}

/// Writes the file. `owner` is the poller's name.
pub(super) fn write(path: &Path, owner: &DeviceId, hosts: &[SavedHost]) -> io::Result<()> {
    let mut text = format!("{HEAD}\n");
    // Writing into a `String` cannot fail.
    for host in hosts {
        let SavedHost { device, group, has_agent, period_us, latest, jobs, ended } = host;
        let agent = u8::from(*has_agent);
        writeln!(text, "host {group} {agent} {period_us} {} {device}", latest.0).ok();
        for SavedJob { id, start, is_rebased } in jobs {
            writeln!(text, "job {id} {} {}", start.0, u8::from(*is_rebased)).ok();
        }
        for SavedEnd { id, start, stop } in ended {
            writeln!(text, "ended {id} {} {}", start.0, stop.0).ok();
        }
    }
    let checksum = checksum(&text, owner);
    writeln!(text, "{checksum:08x}").ok();
    replace_private(path, text.as_bytes())
}

/// The hosts in a file; `None` if there is none, if it is damaged, or if it has another owner.
pub(super) fn read(path: &Path, owner: &DeviceId) -> Option<Vec<SavedHost>> {
    let text = config::read_small(path, FILE_BYTES_MAX).and_then(config::as_text).ok()?;
    let (body, last) = text.trim_end_matches('\n').rsplit_once('\n')?;
    if u32::from_str_radix(last, 16).ok()? != checksum(&format!("{body}\n"), owner) {
        return None;
    }
    let mut lines = body.lines();
    if lines.next()? != HEAD {
        return None;
    }
    let mut hosts: Vec<SavedHost> = Vec::new();
    for line in lines {
        let (what, rest) = line.split_once(' ')?;
        if what == "host" {
            hosts.push(host(rest)?);
            continue;
        }
        let [id, start, third] = rest.split(' ').collect::<Vec<_>>()[..] else { return None };
        let (id, start) = (id.parse().ok()?, instant(start)?);
        let host = hosts.last_mut()?;
        match what {
            "job" => host.jobs.push(SavedJob { id, start, is_rebased: third == "1" }),
            "ended" => host.ended.push(SavedEnd { id, start, stop: instant(third)? }),
            _ => return None,
        }
    }
    Some(hosts)
}

fn host(line: &str) -> Option<SavedHost> {
    let mut parts = line.splitn(5, ' ');
    let mut next = || parts.next();
    Some(SavedHost {
        group: next()?.parse().ok()?,
        has_agent: next()? == "1",
        period_us: next()?.parse().ok()?,
        latest: instant(next()?)?,
        device: DeviceId::new(next()?).ok()?,
        jobs: Vec::new(),
        ended: Vec::new(),
    })
}

fn instant(text: &str) -> Option<Timestamp> {
    text.parse().ok().map(Timestamp)
}

/// The checksum of the lines and of the owner.
fn checksum(body: &str, owner: &DeviceId) -> u32 {
    crc32c(format!("{body}{owner}").as_bytes())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn hosts_are_read_as_written_and_a_damaged_file_is_none() {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("hosts");
        let name = |name: &str| DeviceId::new(name).unwrap();
        let id = |id| JobId::new(id).unwrap();
        let host = |device: &str, jobs, ended| SavedHost {
            device: name(device),
            group: 3,
            has_agent: !device.is_empty(),
            period_us: 5_000_000,
            latest: Timestamp(77),
            jobs,
            ended,
        };
        let job = SavedJob { id: id(7), start: Timestamp(5), is_rebased: true };
        let ended = SavedEnd { id: id(8), start: Timestamp(5), stop: Timestamp(6) };
        let hosts = [host("a b", vec![job], vec![ended]), host("n2", Vec::new(), Vec::new())];
        assert_eq!(read(&path, &name("colmet-oar")), None);
        write(&path, &name("colmet-oar"), &hosts).unwrap();
        assert_eq!(read(&path, &name("colmet-oar")).unwrap(), hosts);
        assert_eq!(read(&path, &name("colmet-other")), None);
        let text = std::fs::read_to_string(&path).unwrap();
        for place in 0..text.len() {
            let mut damaged = text.clone().into_bytes();
            damaged[place] ^= 4;
            std::fs::write(&path, &damaged).unwrap();
            // The last byte is the end of the line.
            assert!(read(&path, &name("colmet-oar")).is_none() || place + 1 == text.len());
        }
    }
}
