//! `jobmeter backup`: copies a server's data folder while the server runs.

use crate::operate::verify::data_dir;
use crate::output::options::JsonOption;
use crate::output::show::counted;
use anyhow::{Context as _, bail};
use config::paths::{
    ACKNOWLEDGED_FILE, AUDIT_FILE, AUDIT_OF_USERS_FILE, DEMAND_FILE, JOBS_FILE, OUTPUTS_DIR,
    SAMPLES_DIR, SamplesIn,
};
use rustix::fs::{AtFlags, CWD, Gid, Mode, Uid, chownat};
use std::fs::{self, Permissions};
use std::io::{self, ErrorKind, Write};
use std::os::unix::fs::{MetadataExt, PermissionsExt};
use std::path::{Path, PathBuf};

/// Mode of copies without an original: only the server may read user names and token hashes.
const FOLDER_MODE: u32 = 0o700;
const FILE_MODE: u32 = 0o600;

/// Copies a server's data folder, also while the server runs
#[derive(clap::Args, Debug)]
#[command(after_help = "Example: jobmeter backup --data /var/lib/jobmeter --to /backup/2026-01-06")]
pub(crate) struct BackupArgs {
    /// The server's --data, or that of `up`
    #[arg(long, value_name = "DIR")]
    data: PathBuf,
    /// Folder of the copy; it must not exist
    #[arg(long, value_name = "DIR")]
    to: PathBuf,
    #[command(flatten)]
    format: JsonOption,
}

/// Copies the data folder, and reports the copy.
pub(crate) fn backup(args: &BackupArgs) -> anyhow::Result<()> {
    let (data, to) = (data_dir(&args.data)?, &args.to);
    // Only links to the folder itself are followed: its owner could replace anything in it.
    let data = &fs::canonicalize(&data).with_context(|| data.display().to_string())?;
    let _progress = crate::client::progress::Progress::start("copying");
    config::paths::outside_of_stores(to).map_err(anyhow::Error::msg)?;
    // During the copy, nobody else can read it.
    rustix::process::umask(Mode::from_bits_truncate(0o077));
    match fs::create_dir(to) {
        Err(error) if error.kind() == ErrorKind::AlreadyExists => {
            bail!("{} already exists; choose a new folder with --to", to.display())
        }
        made => made.with_context(|| format!("making {}", to.display()))?,
    }
    // The registry comes first. Nodes report again a job that the samples contain and the registry lacks. They
    // do not report again a job that ended after its last sample.
    jobs::backup(&data.join(JOBS_FILE), &to.join(JOBS_FILE))?;
    // A server of an earlier version does not have this file.
    let demand = data.join(DEMAND_FILE);
    if demand.try_exists().with_context(|| demand.display().to_string())? {
        jobs::backup(&demand, &to.join(DEMAND_FILE))?;
    }
    copy_server_id(data, to)?;
    let samples_in = config::paths::samples_in(data).with_context(|| data.display().to_string())?;
    let copied = copy_samples(data, to, samples_in)?;
    copy_outputs(data, to)?;
    copy_audit(data, to)?;
    keep_rights(data, to)?;
    write_report(copied, samples_in, args)
}

/// Copies the server ID: agents attribute jobs of `jobmeter run` that began before a restoration to the server with this ID alone.
fn copy_server_id(data: &Path, to: &Path) -> anyhow::Result<()> {
    let from = data.join(jobs::SERVER_ID_FILE);
    match store::copy_file(&from, &to.join(jobs::SERVER_ID_FILE)) {
        // A server of an earlier version does not have this file.
        Err(error) if error.kind() == ErrorKind::NotFound => Ok(()),
        copied => copied.with_context(|| format!("copying {}", from.display())),
    }
}

/// Copies what outputs keep, after their positions: it may be newer than these, and then they repeat samples and lose none.
fn copy_outputs(data: &Path, to: &Path) -> anyhow::Result<()> {
    let below = Path::new(OUTPUTS_DIR);
    let all = entries(&data.join(below))?;
    if !all.is_empty() {
        fs::create_dir(to.join(below))?;
    }
    for output in all {
        let below = below.join(output);
        fs::create_dir(to.join(&below))?;
        for name in entries(&data.join(&below))? {
            let from = data.join(&below).join(&name);
            match store::copy_file(&from, &to.join(&below).join(&name)) {
                // It was replaced meanwhile.
                Err(error) if error.kind() == ErrorKind::NotFound => {}
                copied => {
                    copied.with_context(|| format!("copying {}", from.display())).map(drop)?
                }
            }
        }
    }
    Ok(())
}

/// The names in a folder; none if there is no such folder.
fn entries(dir: &Path) -> anyhow::Result<Vec<std::ffi::OsString>> {
    let known = || dir.display().to_string();
    match fs::read_dir(dir) {
        Err(error) if error.kind() == ErrorKind::NotFound => Ok(Vec::new()),
        read => {
            let names = read.with_context(known)?.map(|entry| Ok(entry?.file_name()));
            names.collect::<io::Result<_>>().with_context(known)
        }
    }
}

/// Copies the samples, if the folder has them. Of samples in a database it copies the record of acknowledged batches, so that a
/// server with the copy finds what an older database lacks.
fn copy_samples(data: &Path, to: &Path, samples_in: SamplesIn) -> anyhow::Result<store::Copied> {
    if samples_in.database {
        let from = data.join(ACKNOWLEDGED_FILE);
        store::copy_file(&from, &to.join(ACKNOWLEDGED_FILE))
            .with_context(|| format!("copying {}", from.display()))?;
    }
    match samples_in.folder {
        true => Ok(store::backup(&data.join(SAMPLES_DIR), &to.join(SAMPLES_DIR))?),
        false => Ok(store::Copied::default()),
    }
}

fn write_report(
    copied: store::Copied,
    samples_in: SamplesIn,
    args: &BackupArgs,
) -> anyhow::Result<()> {
    let (to, mut out) = (&args.to, io::stdout().lock());
    let store::Copied { blocks, samples, archived, segments, bytes } = copied;
    if args.format.json {
        let answer = serde_json::json!({"folder": to, "samples_in_database": samples_in.database,
            "blocks": blocks, "archived_blocks": archived, "samples": samples,
            "log_segments": segments, "bytes": bytes});
        return Ok(writeln!(out, "{answer}")?);
    }
    if samples_in.database {
        writeln!(
            out,
            "{}: jobs, tokens, requests and the audit log; pg_dump copies the samples in the database",
            to.display()
        )?;
    }
    if samples_in.folder {
        writeln!(
            out,
            "{}: {} with {}, {} with the newest samples, {bytes} bytes; \
             start a server with it as --data to use it",
            to.display(),
            counted(blocks, "block"),
            counted(samples, "sample"),
            counted(segments, "log segment")
        )?;
    }
    if archived > 0 {
        writeln!(
            out,
            "{archived} blocks are in the archive, which is not copied; the copy refers to them \
             there"
        )?;
    }
    Ok(())
}

/// Copies the audit log, newest file first: a file rotated during the copy is copied twice rather than missed.
fn copy_audit(data: &Path, to: &Path) -> anyhow::Result<()> {
    let entries = fs::read_dir(data).with_context(|| data.display().to_string())?;
    let names = entries.flatten().filter_map(|entry| entry.file_name().into_string().ok());
    let mut names: Vec<String> = names.filter(|name| is_audit(name)).collect();
    names.sort_unstable();
    for name in names {
        let from = data.join(&name);
        match store::copy_file(&from, &to.join(&name)) {
            Err(error) if error.kind() == ErrorKind::NotFound => {}
            copied => {
                copied.with_context(|| format!("copying {}", from.display()))?;
            }
        }
    }
    Ok(())
}

/// Whether a file is an audit log: a current or a rotated one.
fn is_audit(name: &str) -> bool {
    [AUDIT_FILE, AUDIT_OF_USERS_FILE].iter().any(|file| name.starts_with(file))
}

/// Gives each file and folder of a copy the mode and the owner of its original. Without an original, it gets the
/// owner of the data folder. The folder of the copy is the last one: until then its new owner cannot enter it, so
/// nobody replaces a file by a link meanwhile.
fn keep_rights(data: &Path, copy: &Path) -> anyhow::Result<()> {
    let server = fs::metadata(data).with_context(|| data.display().to_string())?;
    let mut all = vec![PathBuf::new()];
    let mut next = 0;
    while let Some(below) = all.get(next).cloned() {
        next += 1;
        let path = copy.join(&below);
        let known = || path.display().to_string();
        if fs::symlink_metadata(&path).with_context(known)?.is_dir() {
            for entry in fs::read_dir(&path).with_context(known)? {
                all.push(below.join(entry.with_context(known)?.file_name()));
            }
        }
    }
    // Folders come after what they contain.
    all.iter()
        .rev()
        .try_for_each(|below| keep_rights_of(&server, &data.join(below), &copy.join(below)))
}

fn keep_rights_of(server: &fs::Metadata, original: &Path, path: &Path) -> anyhow::Result<()> {
    let known = || path.display().to_string();
    let own = fs::symlink_metadata(path).with_context(known)?;
    // The original of a merged block, or of a stored log segment, may be deleted by now.
    let original = fs::symlink_metadata(original).ok().filter(|it| !it.is_symlink());
    let new_mode = if own.is_dir() { FOLDER_MODE } else { FILE_MODE };
    let mode = original.as_ref().map_or(new_mode, |it| it.mode() & 0o777);
    if mode != own.mode() & 0o7777 {
        fs::set_permissions(path, Permissions::from_mode(mode)).with_context(known)?;
    }
    let owner = original.as_ref().unwrap_or(server);
    let (uid, gid) = (owner.uid(), owner.gid());
    if (uid, gid) != (own.uid(), own.gid()) {
        let ids = (Some(Uid::from_raw(uid)), Some(Gid::from_raw(gid)));
        chownat(CWD, path, ids.0, ids.1, AtFlags::SYMLINK_NOFOLLOW).with_context(|| {
            format!("{}: giving it to user {uid}, group {gid}; run as root", path.display())
        })?;
    }
    Ok(())
}
