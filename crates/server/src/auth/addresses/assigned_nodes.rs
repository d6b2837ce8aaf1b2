//! The administrator's file of addresses and their nodes: `push.node_addresses`.

use crate::auth::addresses::client_address::is_of_machine;
use crate::auth::file_trust::check_trust;
use model::DeviceId;
use std::collections::HashMap;
use std::collections::hash_map::Entry;
use std::fs;
use std::net::IpAddr;
use std::path::Path;

/// Bytes of the file.
const FILE_BYTES_MAX: u64 = 4 << 20;
/// Errors that are reported; the rest of the file is not checked.
const ERRORS_MAX: usize = 20;
/// Characters of a word in a message.
const SHOWN_MAX: usize = 100;

/// The node of each address.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(crate) struct AssignedNodes(HashMap<IpAddr, DeviceId>);

impl AssignedNodes {
    /// Reads the file.
    ///
    /// # Errors
    /// The file cannot be read, others could change it, or lines are invalid: all of them.
    pub(crate) fn read(path: &Path) -> Result<Self, Vec<String>> {
        let shown = path.display();
        let about = fs::metadata(path).and_then(|about| check_trust(&about));
        let text =
            about.and_then(|()| config::read_small(path, FILE_BYTES_MAX).and_then(config::as_text));
        let text = text.map_err(|error| vec![format!("{shown}: {error}")])?;
        let place = |(line, what): (usize, String)| format!("{shown}:{line}: {what}");
        Self::parse(&text).map_err(|errors| errors.into_iter().map(place).collect())
    }

    /// Parses the lines `ADDRESS NODE`. Returns all errors, each with its line, from 1.
    fn parse(text: &str) -> Result<Self, Vec<(usize, String)>> {
        let (mut nodes, mut errors) = (HashMap::new(), Vec::new());
        for (line, number) in text.lines().zip(1..) {
            let line = line.split('#').next().unwrap_or_default().trim();
            if line.is_empty() {
                continue;
            }
            let added = parse_line(line).and_then(|(address, node)| match nodes.entry(address) {
                Entry::Occupied(_) => Err(format!("{address} is on an earlier line, too")),
                Entry::Vacant(new) => Ok(new.insert(node)),
            });
            errors.extend(added.err().map(|what| (number, what)));
            if errors.len() >= ERRORS_MAX {
                errors.push((number, "later lines were not checked".to_owned()));
                break;
            }
        }
        if errors.is_empty() { Ok(Self(nodes)) } else { Err(errors) }
    }

    /// The node of an address.
    pub(crate) fn node(&self, address: IpAddr) -> Option<&DeviceId> {
        self.0.get(&address)
    }
}

fn parse_line(line: &str) -> Result<(IpAddr, DeviceId), String> {
    let words: Vec<&str> = line.split_whitespace().collect();
    let [address, node] = words[..] else { return Err("a line is `ADDRESS NODE`".to_owned()) };
    let shown: String = address.chars().take(SHOWN_MAX).collect();
    let shown = shown.escape_debug();
    let parsed = address.parse::<IpAddr>().map_err(|_| format!("`{shown}` is no address"))?;
    let parsed = parsed.to_canonical();
    if !is_of_machine(parsed) {
        return Err(format!("`{shown}` identifies no other machine"));
    }
    Ok((parsed, DeviceId::new(node).map_err(|error| error.to_string())?))
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::os::unix::fs::PermissionsExt as _;

    #[test]
    fn lines_assign_addresses() {
        let text =
            "# nodes\n\n10.0.0.7 n7\n2001:db8::7\tn7 # the other one\n ::ffff:10.0.0.8  n8\n";
        let nodes = AssignedNodes::parse(text).unwrap();
        let of = |address: &str| nodes.node(address.parse().unwrap()).map(DeviceId::as_str);
        assert_eq!(
            (of("10.0.0.7"), of("2001:db8::7"), of("10.0.0.8")),
            (Some("n7"), Some("n7"), Some("n8"))
        );
        assert_eq!(of("10.0.0.9"), None);
    }

    #[test]
    fn every_wrong_line_is_reported() {
        let text = "10.0.0.7 n7\n10.0.0.7 n8\nn9 10.0.0.9\n127.0.0.1 n1\n10.0.0.8\n10.0.0.9 a/b\n::1 n1\n10.0.0.0/8 n1\n";
        let lines: Vec<usize> =
            AssignedNodes::parse(text).unwrap_err().iter().map(|one| one.0).collect();
        assert_eq!(lines, [2, 3, 4, 5, 6, 7, 8]);
        let many = "x\n".repeat(1000);
        assert_eq!(AssignedNodes::parse(&many).unwrap_err().len(), ERRORS_MAX + 1);
    }

    #[test]
    fn a_file_that_others_can_write_is_rejected() {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("nodes");
        fs::write(&path, "10.0.0.7 n7\n").unwrap();
        let mode = |mode| fs::set_permissions(&path, fs::Permissions::from_mode(mode)).unwrap();
        mode(0o644);
        assert!(AssignedNodes::read(&path).is_ok());
        mode(0o666);
        let errors = AssignedNodes::read(&path).unwrap_err();
        assert!(errors[0].contains("chmod go-w"), "{errors:?}");
        assert!(AssignedNodes::read(dir.path()).is_err());
    }
}
