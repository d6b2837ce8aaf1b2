//! GPU use by the processes of each job.
//!
//! A process's open GPUs appear in `/proc/PID/fdinfo` ([`kernel::drm`]). The source scans all descriptors of
//! a process every 30 s, and reads GPU descriptors at every reading. The use of a client is added to its
//! job's counters and remains after the client closes; use after its last reading is lost. ROCm bypasses
//! these engines: AMD's compute driver reports it in `/sys/class/kfd/kfd/proc/PID/`
//! (drivers/gpu/drm/amd/amdkfd/kfd_process.c, Linux 5.9):
//!
//! ```text
//! vram_33536                       8589934592      bytes on the GPU with gpu_id 33536
//! sdma_33536                       4711            microseconds that its copy engines worked
//! stats_33536/cu_occupancy         96              compute units that it occupies
//! ```

use super::Card;
use crate::{Context, PartState, SourceError};
use cgroups::{Members, processes};
use kernel::drm::{DrmClient, drm_client};
use kernel::parse::number;
use kernel::{ReadError, Root, clock};
use model::{JobKey, Timestamp};
use std::collections::HashMap;
use std::fmt::Write as _;

/// Interval between scans of all descriptors of a process.
const LOOK_EVERY_US: i64 = 30 * Timestamp::SECOND;
/// Maximum number of descriptors of a process that are scanned.
const FILES_MAX: usize = 4096;
/// Maximum number of clients tracked at a time.
const CLIENTS_MAX: usize = 4096;
/// A client unseen for this long has closed: a busy driver may skip a reading.
const CLOSED_AFTER_US: i64 = 300 * Timestamp::SECOND;
/// Maximum number of engine kinds.
const ENGINES_MAX: usize = 32;
const KFD: &str = "sys/class/kfd/kfd/proc";

/// Use of one GPU by a job.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(super) struct Used {
    /// Index in the list of cards.
    pub(super) card: usize,
    /// The job's processes on this GPU.
    pub(super) processes: u32,
    /// Memory of its clients, where the driver reports it.
    pub(super) vram_bytes: Option<u64>,
    pub(super) gtt_bytes: Option<u64>,
    /// Nanoseconds, by index of the engine.
    pub(super) engines: Vec<Option<u64>>,
    /// Values of the compute driver.
    pub(super) kfd_bytes: Option<u64>,
    pub(super) compute_units: Option<u64>,
    pub(super) sdma_us: Option<u64>,
    /// The most recently counted process.
    counted: u32,
}

/// A job and its GPUs.
#[derive(Debug)]
pub(super) struct User {
    pub(super) job: JobKey,
    /// Start of its counters.
    pub(super) start: Timestamp,
    pub(super) used: Vec<Used>,
    /// Whether all its files were read this time.
    pub(super) is_whole: bool,
    is_listed: bool,
    /// Unique ID among all users since the start.
    no: u64,
    /// The job existed before the first reading: earlier use by its first processes is not counted.
    is_old: bool,
    first_round: u64,
}

#[derive(Debug, Default)]
struct Process {
    round: u64,
    first_round: u64,
    looked: Option<Timestamp>,
    /// One of its GPU descriptors no longer refers to a GPU.
    changed: bool,
    /// Its GPU descriptors.
    files: Vec<u32>,
    /// Last value of the copy engines' time, by card.
    sdma_us: Vec<(usize, u64)>,
}

#[derive(Debug)]
struct Client {
    job: u64,
    round: u64,
    seen: Timestamp,
    engines: Vec<u64>,
}

/// The jobs of the node and their use, as of the last reading.
#[derive(Debug, Default)]
pub(super) struct Users {
    generation: Option<u64>,
    users: Vec<User>,
    /// Names of the engines.
    engines: Vec<Box<str>>,
    processes: HashMap<u32, Process>,
    /// By client ID and card.
    clients: HashMap<(u64, usize), Client>,
    kfd: Vec<u32>,
    round: u64,
    made: u64,
    members: Members,
    files: Vec<u32>,
    path: String,
    text: Vec<u8>,
    denied: bool,
    left_out: usize,
}

impl Users {
    pub(super) fn users(&self) -> &[User] {
        &self.users
    }

    /// Name of an engine.
    pub(super) fn engine(&self, place: usize) -> &str {
        self.engines.get(place).map_or("", |name| name)
    }

    /// Reads the current use of all jobs; returns the state of this part.
    pub(super) fn look(&mut self, cx: &Context<'_>, cards: &[Card]) -> PartState {
        self.round += 1;
        (self.denied, self.left_out) = (false, 0);
        self.follow_jobs(cx);
        self.kfd.clear();
        let kfd = &mut self.kfd;
        // Without the compute driver the list is absent.
        cx.root.list(KFD, |entry| kfd.extend(entry.name.parse::<u32>().ok())).ok();
        let began_us = clock::thread_cpu_us();
        for place in 0..self.users.len() {
            self.look_at(place, cx, cards, began_us);
        }
        // A job that could not be listed may still have its processes: keep their last values.
        if self.users.iter().all(|user| user.is_listed) {
            let round = self.round;
            self.processes.retain(|_, process| process.round == round);
        }
        self.clients.retain(|_, client| cx.now.since(client.seen) < CLOSED_AFTER_US);
        if self.denied {
            let grant = "root, or CAP_SYS_PTRACE";
            return PartState::Not(SourceError::denied("/proc/PID/fdinfo of other users", grant));
        }
        match self.left_out {
            0 => PartState::Ok,
            left_out => PartState::Not(SourceError::broken(format!(
                "{left_out} open files or clients are more than {FILES_MAX} of a process, or \
                 {CLIENTS_MAX} at all, and left out"
            ))),
        }
    }

    fn follow_jobs(&mut self, cx: &Context<'_>) {
        if self.generation == Some(cx.jobs.generation()) {
            return;
        }
        let is_first = self.generation.is_none();
        self.generation = Some(cx.jobs.generation());
        self.users.retain(|user| cx.jobs.get(&user.job).is_some());
        for job in cx.jobs.iter() {
            if !self.users.iter().any(|user| user.job == job.key) {
                self.made += 1;
                self.users.push(User {
                    job: job.key.clone(),
                    start: if is_first { cx.now } else { job.created.min(cx.now) },
                    used: Vec::new(),
                    is_whole: true,
                    is_listed: true,
                    no: self.made,
                    is_old: is_first,
                    first_round: self.round,
                });
            }
        }
        let users = &self.users;
        self.clients.retain(|_, client| users.iter().any(|user| user.no == client.job));
    }

    fn look_at(&mut self, place: usize, cx: &Context<'_>, cards: &[Card], began_us: u64) {
        let Some(user) = self.users.get_mut(place) else { return };
        for used in &mut user.used {
            let Used { vram_bytes, gtt_bytes, kfd_bytes, compute_units, .. } = used;
            (*vram_bytes, *gtt_bytes, *kfd_bytes, *compute_units) = (None, None, None, None);
            (used.processes, used.counted) = (0, 0);
        }
        let Some(job) = cx.jobs.get(&user.job) else { return };
        // A job that ended meanwhile has no processes.
        user.is_listed = processes(cx.root, job, &mut self.members).is_ok();
        user.is_whole = user.is_listed;
        for at in 0..self.members.ids().len() {
            let Some(pid) = self.members.ids().get(at).copied() else { break };
            let process = self.processes.entry(pid).or_default();
            if process.round == self.round {
                continue;
            }
            if process.round == 0 {
                process.first_round = self.round;
            }
            process.round = self.round;
            let is_due = |looked: Timestamp| cx.now.since(looked) >= LOOK_EVERY_US;
            let is_new = process.looked.is_none();
            let spent_us = clock::thread_cpu_us().saturating_sub(began_us);
            let looks = process.changed || process.looked.is_none_or(is_due);
            if looks && spent_us < cx.budget_us {
                (process.looked, process.changed) = (Some(cx.now), false);
                self.look_for_files(pid, cx.root);
            }
            self.read_files(place, pid, is_new, cx, cards);
            if self.kfd.contains(&pid) {
                self.read_kfd(place, pid, is_new, cx.root, cards);
            }
        }
    }

    /// Finds the GPU descriptors of a process.
    fn look_for_files(&mut self, pid: u32, root: &Root) {
        let Self { path, files, text, processes, .. } = self;
        let Some(process) = processes.get_mut(&pid) else { return };
        process.files.clear();
        files.clear();
        set(path, format_args!("proc/{pid}/fdinfo"));
        let mut left_out = 0;
        let listed = root.list(path, |entry| match entry.name.parse() {
            Ok(file) if files.len() < FILES_MAX => files.push(file),
            Ok(_) => left_out += 1,
            Err(_) => {}
        });
        self.left_out += left_out;
        self.denied |= matches!(listed, Err(ReadError::Denied { .. }));
        for file in &*files {
            set(path, format_args!("proc/{pid}/fdinfo/{file}"));
            if root.read(path, text).is_ok() && matches!(drm_client(text), Ok(Some(_))) {
                process.files.push(*file);
            }
        }
    }

    fn read_files(
        &mut self,
        place: usize,
        pid: u32,
        is_new: bool,
        cx: &Context<'_>,
        cards: &[Card],
    ) {
        let mut text = std::mem::take(&mut self.text);
        let count = self.processes.get(&pid).map_or(0, |process| process.files.len());
        for at in 0..count {
            let Some(file) = self.processes.get(&pid).and_then(|one| one.files.get(at)) else {
                break;
            };
            set(&mut self.path, format_args!("proc/{pid}/fdinfo/{file}"));
            match cx.root.read(&self.path, &mut text).map(|()| drm_client(&text)) {
                Ok(Ok(Some(client))) => self.add(place, pid, is_new, &client, cx.now, cards),
                // The descriptor was closed, or the process has ended.
                Err(error) if error.is_absent() => {}
                // Another file has this descriptor now, or a busy driver reported nothing.
                Ok(_) | Err(_) => {
                    self.users.get_mut(place).into_iter().for_each(|user| user.is_whole = false);
                    self.processes.get_mut(&pid).into_iter().for_each(|one| one.changed = true);
                }
            }
        }
        self.text = text;
    }

    /// Adds a client's memory and engine time to its job.
    fn add(
        &mut self,
        place: usize,
        pid: u32,
        is_new: bool,
        info: &DrmClient<'_>,
        now: Timestamp,
        cards: &[Card],
    ) {
        let is_card = |card: &Card| card.pci.as_bytes() == info.device;
        let (true, Some(card)) = (info.driver == b"amdgpu", cards.iter().position(is_card)) else {
            return;
        };
        let Self { users, processes, clients, engines, round, .. } = self;
        let Some(user) = users.get_mut(place) else { return };
        let began = processes.get(&pid).map_or(0, |process| process.first_round);
        let used_before = user.is_old && is_new && began == user.first_round;
        user.of(card).count(pid);
        let is_known = clients.contains_key(&(info.id, card));
        if !is_known && clients.len() >= CLIENTS_MAX {
            self.left_out += 1;
            return;
        }
        let client = clients.entry((info.id, card)).or_insert_with(|| Client {
            job: user.no,
            round: 0,
            seen: now,
            engines: Vec::new(),
        });
        // Another descriptor of the same client.
        if client.round == *round {
            return;
        }
        (client.round, client.seen) = (*round, now);
        let used = user.of(card);
        add_to(&mut used.vram_bytes, info.memory_bytes("vram"));
        add_to(&mut used.gtt_bytes, info.memory_bytes("gtt"));
        for (name, nanos) in info.engines() {
            let known = engines.iter().position(|engine| **engine == *name);
            let engine = match known {
                Some(engine) => engine,
                None if engines.len() < ENGINES_MAX => {
                    engines.push(name.into());
                    engines.len() - 1
                }
                None => continue,
            };
            let last = slot(&mut client.engines, engine);
            // The value may fall for a moment: keep the larger one.
            let grown = nanos.saturating_sub(*last);
            *last = nanos.max(*last);
            let counts = is_known || !used_before;
            add_to(slot(&mut used.engines, engine), Some(if counts { grown } else { 0 }));
        }
    }

    fn read_kfd(&mut self, place: usize, pid: u32, is_new: bool, root: &Root, cards: &[Card]) {
        let Self { users, processes, path, text, .. } = self;
        let (Some(user), Some(process)) = (users.get_mut(place), processes.get_mut(&pid)) else {
            return;
        };
        let used_before = user.is_old && is_new && process.first_round == user.first_round;
        for (card, Card { kfd, .. }) in cards.iter().enumerate() {
            let Some(gpu) = kfd else { continue };
            let mut value = |file: std::fmt::Arguments<'_>| {
                set(path, format_args!("{KFD}/{pid}/{file}"));
                root.read(path, text).ok()?;
                number(text.trim_ascii())
            };
            // A process has the files of every GPU, including unused ones.
            let bytes = value(format_args!("vram_{gpu}")).filter(|bytes| *bytes > 0);
            let units = value(format_args!("stats_{gpu}/cu_occupancy"));
            let sdma_us = value(format_args!("sdma_{gpu}")).filter(|sdma_us| *sdma_us > 0);
            if bytes.is_none() && sdma_us.is_none() && units.unwrap_or(0) == 0 {
                continue;
            }
            let used = user.of(card);
            used.count(pid);
            add_to(&mut used.kfd_bytes, bytes);
            add_to(&mut used.compute_units, units);
            let Some(sdma_us) = sdma_us else { continue };
            let last = process.sdma_us.iter_mut().find(|(of, _)| *of == card);
            let grown = match last {
                Some((_, last)) => {
                    sdma_us.saturating_sub(std::mem::replace(last, sdma_us.max(*last)))
                }
                None => {
                    process.sdma_us.push((card, sdma_us));
                    if used_before { 0 } else { sdma_us }
                }
            };
            add_to(&mut used.sdma_us, Some(grown));
        }
    }
}

impl User {
    fn of(&mut self, card: usize) -> &mut Used {
        let place = self.used.iter().position(|used| used.card == card);
        let place = place.unwrap_or_else(|| {
            self.used.push(Used { card, ..Used::default() });
            self.used.len() - 1
        });
        // Found or pushed above.
        #[expect(clippy::indexing_slicing, reason = "the index was found in the line above")]
        &mut self.used[place]
    }
}

impl Used {
    fn count(&mut self, pid: u32) {
        if self.counted != pid {
            (self.counted, self.processes) = (pid, self.processes + 1);
        }
    }
}

fn slot<T: Default + Clone>(list: &mut Vec<T>, place: usize) -> &mut T {
    if list.len() <= place {
        list.resize(place + 1, T::default());
    }
    #[expect(clippy::indexing_slicing, reason = "the list was resized to contain it")]
    &mut list[place]
}

fn add_to(sum: &mut Option<u64>, part: Option<u64>) {
    if let Some(part) = part {
        *sum = Some(sum.unwrap_or(0).saturating_add(part));
    }
}

fn set(path: &mut String, text: std::fmt::Arguments<'_>) {
    path.clear();
    // Writing into a `String` cannot fail.
    path.write_fmt(text).ok();
}

#[cfg(test)]
mod tests;
