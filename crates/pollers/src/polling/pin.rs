//! `jobmeter poll --pin`: pins the certificates that the system's roots do not verify.

use super::presented_certificates::presented;
use crate::descriptions::{Description, Pins, Target, hexadecimal};
use model::printable;
use std::collections::BTreeSet;
use std::io::{self, Write};
use std::path::Path;
use std::sync::Arc;
use tokio::sync::Semaphore;
use tokio::task::JoinSet;

/// Connections at the same time.
const CONNECTIONS_MAX: usize = 64;

/// Pins the certificates of the targets in a file, and prints what it pinned. A pinned certificate is not replaced.
/// Returns whether every target was reached and has its pinned certificate.
pub(crate) async fn pin(descriptions: &[Description], file: &Path) -> io::Result<bool> {
    let mut pins = Pins::read(file).map_err(io::Error::other)?;
    let verified = descriptions.iter().filter(|one| one.is_verified_by_roots());
    let targets: BTreeSet<Arc<Target>> = verified.map(|one| Arc::clone(&one.target)).collect();
    let permits = Arc::new(Semaphore::new(CONNECTIONS_MAX));
    let mut connections = JoinSet::new();
    for target in targets {
        let permits = Arc::clone(&permits);
        connections.spawn(async move {
            // The semaphore is never closed.
            let _permit = permits.acquire().await.ok();
            let presented = presented(&target).await;
            (target, presented)
        });
    }
    let (mut stdout, mut stderr, mut is_good) = (io::stdout(), io::stderr(), true);
    while let Some(ended) = connections.join_next().await {
        let (target, presented) = ended.map_err(io::Error::other)?;
        let problem = match presented {
            Ok(None) => {
                writeln!(stdout, "{target}: the system's roots verify it")?;
                continue;
            }
            Ok(Some(digest)) => match pins.pin(&target, digest) {
                None => {
                    writeln!(stdout, "{target}: pinned {}", hexadecimal(&digest))?;
                    continue;
                }
                Some(earlier) => format!(
                    "it presents {}, but {} is pinned; if it has a new certificate, remove its line from {}",
                    hexadecimal(&digest),
                    hexadecimal(&earlier),
                    file.display()
                ),
            },
            Err(failure) => failure.to_string(),
        };
        is_good = false;
        writeln!(stderr, "{target}: {}", printable(&problem))?;
    }
    pins.write(file)
        .map_err(|error| io::Error::new(error.kind(), format!("{}: {error}", file.display())))?;
    Ok(is_good)
}
