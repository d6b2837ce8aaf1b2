//! Replaces identifying text in recordings: names of this machine, its users and its mounts' servers, network
//! addresses, and hardware addresses. The same name or address always has the same replacement, so that
//! references still match.

use kernel::Root;
use kernel::parse::lines;
use kernel::user_files::{Account, accounts};
use std::cell::RefCell;
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr};

/// Mount tables; a line has the server at its start or after `device `.
const MOUNTS: [&str; 3] = ["proc/self/mounts", "proc/mounts", "proc/self/mountstats"];
/// Words of the kernel's own tables: a machine with such a name keeps it, because the tables must remain
/// readable.
const KERNEL_WORDS: [&str; 26] = [
    "all",
    "btime",
    "cpu",
    "cpu0",
    "ctxt",
    "device",
    "disk",
    "intr",
    "ip",
    "lo",
    "mem",
    "net",
    "node",
    "none",
    "page",
    "proc",
    "processes",
    "root",
    "softirq",
    "swap",
    "sys",
    "tcp",
    "total",
    "udp",
    "up",
    "user",
];

/// Names with their replacements.
pub(super) struct Scrub {
    names: Vec<(String, String)>,
    /// Addresses found so far, in order.
    met: RefCell<Vec<String>>,
}

impl Scrub {
    /// Collects the names that this machine knows.
    pub(super) fn of(root: &Root) -> Self {
        let mut names = Vec::new();
        let host = root.read_text("proc/sys/kernel/hostname").unwrap_or_default();
        let short = host.split('.').next().unwrap_or_default().to_owned();
        for name in [host, short] {
            names.push((name, "node-1".to_owned()));
        }
        let mut passwd = Vec::new();
        // Without the file, there are no names to replace.
        root.read("etc/passwd", &mut passwd).ok();
        // A login name of two letters occurs in too many words to be replaced.
        let is_person =
            |user: &Account<'_>| (1000..65534).contains(&user.uid) && user.name.len() > 2;
        let people = accounts(&passwd).filter(is_person).map(|user| user.name.to_owned());
        names.extend(people.zip(1..).map(|(name, n)| (name, format!("user{n}"))));
        for (of_one, n) in servers(root).into_iter().zip(1..) {
            names.extend(of_one.into_iter().map(|name| (name, format!("server-{n}"))));
        }
        Self::with(names)
    }

    fn with(mut names: Vec<(String, String)>) -> Self {
        // A name of digits only would match numbers anywhere.
        names.retain(|(name, _)| name.bytes().any(|byte| !byte.is_ascii_digit()));
        names.retain(|(name, _)| !KERNEL_WORDS.contains(&&**name));
        names.sort_by_key(|(name, _)| std::cmp::Reverse(name.len()));
        Self { names, met: RefCell::default() }
    }

    pub(super) fn text(&self, text: &str) -> String {
        let named = self
            .names
            .iter()
            .fold(text.to_owned(), |text, (name, other)| whole_words(&text, name, other));
        self.addresses(&named)
    }

    pub(super) fn bytes(&self, bytes: &[u8]) -> Vec<u8> {
        match std::str::from_utf8(bytes) {
            Ok(text) => self.text(text).into_bytes(),
            Err(_) => bytes.to_owned(),
        }
    }

    /// Replaces addresses: separate words of hexadecimal digits, points and colons.
    fn addresses(&self, text: &str) -> String {
        let part = |c: char| c.is_ascii_hexdigit() || matches!(c, '.' | ':');
        let (mut out, mut rest) = (String::with_capacity(text.len()), text);
        while let Some(start) = rest.find(part) {
            let (before, from) = rest.split_at_checked(start).unwrap_or((rest, ""));
            let end = from.find(|c| !part(c)).unwrap_or(from.len());
            let (word, after) = from.split_at_checked(end).unwrap_or((from, ""));
            out.push_str(before);
            let joined = |c: Option<char>| c.is_some_and(|c| c.is_alphanumeric() || c == '_');
            if joined(out.chars().next_back()) {
                // The word is glued to text before it, so an address may follow its first separator: `o2ib:10.0.0.1`.
                let own = word.find(['.', ':']).map_or(word.len(), |place| place + 1);
                let (own, _) = word.split_at_checked(own).unwrap_or((word, ""));
                out.push_str(own);
                rest = from.get(own.len()..).unwrap_or_default();
                continue;
            }
            if joined(after.chars().next()) {
                out.push_str(word);
            } else {
                self.address(word, &mut out);
            }
            rest = after;
        }
        out + rest
    }

    /// Appends a word, replaced if it is an address; a following port or colon remains.
    fn address(&self, word: &str, out: &mut String) {
        let bare = word.trim_end_matches([':', '.']);
        let (host, port) = bare.split_once(':').unwrap_or((bare, ""));
        let head = match host.parse::<Ipv4Addr>() {
            Ok(_) if port.bytes().all(|byte| byte.is_ascii_digit()) => host,
            _ => bare,
        };
        match self.other(head) {
            Some(other) => {
                out.push_str(&other);
                out.push_str(word.get(head.len()..).unwrap_or_default());
            }
            None => out.push_str(word),
        }
    }

    /// The replacement of an address; `None` if the word is not an address, or does not identify this machine.
    fn other(&self, word: &str) -> Option<String> {
        if is_hardware(word) {
            let pairs = word.split(':').count();
            let number = self.number(&word.to_ascii_lowercase());
            let zeros = "00:".repeat(pairs.saturating_sub(3));
            return Some(format!("02:{zeros}{:02x}:{:02x}", number >> 8 & 0xff, number & 0xff));
        }
        match word.parse::<IpAddr>().ok()? {
            ip if ip.is_loopback() || ip.is_unspecified() || ip.is_multicast() => None,
            IpAddr::V4(ip) if ip.is_broadcast() || is_mask(ip) => None,
            IpAddr::V4(ip) => {
                let number = self.number(&ip.to_string());
                // The documentation and benchmark ranges (RFC 5737, RFC 2544) have 131 072 addresses.
                let [_, b, c, d] = number.to_be_bytes();
                Some(Ipv4Addr::new(198, 18 | b & 1, c, d).to_string())
            }
            IpAddr::V6(ip) => {
                let [a, b, c, d] = self.number(&ip.to_string()).to_be_bytes();
                let (high, low) = (u16::from_be_bytes([a, b]), u16::from_be_bytes([c, d]));
                Some(Ipv6Addr::new(0x2001, 0xdb8, 0, 0, 0, 0, high, low).to_string())
            }
        }
    }

    /// The index of an address among those found, from 1.
    fn number(&self, address: &str) -> u32 {
        let mut met = self.met.borrow_mut();
        let place = met.iter().position(|known| known == address).unwrap_or_else(|| {
            met.push(address.to_owned());
            met.len() - 1
        });
        u32::try_from(place + 1).unwrap_or(u32::MAX)
    }
}

/// The names of the mounts' servers, complete and without the domain. NFS and Lustre use `server:/path`, with
/// `:` or `,` between several servers; SMB uses `//server/share`.
fn servers(root: &Root) -> Vec<[String; 2]> {
    let mut found: Vec<[String; 2]> = Vec::new();
    for path in MOUNTS {
        let text = root.read_text(path).unwrap_or_default();
        for line in lines(text.as_bytes()) {
            let line = String::from_utf8_lossy(line);
            let device = line.strip_prefix("device ").unwrap_or(&line);
            let device = device.split_whitespace().next().unwrap_or_default();
            let hosts = match (device.split_once(":/"), device.strip_prefix("//")) {
                (_, Some(share)) => share.split('/').next().unwrap_or_default(),
                (Some((hosts, _)), _) => hosts,
                (None, None) => continue,
            };
            // A Lustre network follows the `@`.
            let names = hosts.split([':', ',']).map(|host| host.split('@').next().unwrap_or(host));
            for name in names.filter(|name| name.parse::<IpAddr>().is_err()) {
                let short = name.split('.').next().unwrap_or_default();
                let ok = |c: char| c.is_ascii_alphanumeric() || matches!(c, '-' | '.' | '_');
                let is_name = !short.is_empty() && name.chars().all(ok);
                if is_name && !found.iter().any(|[known, _]| known == name) {
                    found.push([name, short].map(str::to_owned));
                }
            }
        }
    }
    found
}

/// The lines of `/proc/net/tcp` with their states, without addresses and ports.
pub(super) fn tcp(text: &[u8]) -> Vec<u8> {
    let text = String::from_utf8_lossy(text);
    let mut out = String::with_capacity(text.len());
    for line in text.split_inclusive('\n') {
        let blank = |word: &str| -> String {
            word.chars().map(|c| if c.is_ascii_hexdigit() { '0' } else { c }).collect()
        };
        let is_socket = |word: &str| {
            word.contains(':')
                && word.len() > 8
                && word.chars().all(|c| c.is_ascii_hexdigit() || c == ':')
        };
        let words: Vec<&str> = line.split(' ').collect();
        let mut sockets = 0;
        let shown = words.into_iter().map(|word| {
            // The two addresses come first; queue columns have the same format.
            if sockets < 2 && is_socket(word) {
                sockets += 1;
                return blank(word);
            }
            word.to_owned()
        });
        out.push_str(&shown.collect::<Vec<_>>().join(" "));
    }
    out.into_bytes()
}

/// Replaces a name as a whole word, between characters that cannot be part of a name.
fn whole_words(text: &str, name: &str, other: &str) -> String {
    let inside = |c: Option<char>| c.is_some_and(|c| c.is_ascii_alphanumeric());
    let (mut out, mut rest) = (String::new(), text);
    while let Some((before, after)) = rest.split_once(name) {
        let alone = !inside(before.chars().next_back().or_else(|| out.chars().next_back()))
            && !inside(after.chars().next());
        out.push_str(before);
        out.push_str(if alone { other } else { name });
        rest = after;
    }
    out + rest
}

/// Whether a word is a hardware address: pairs of hexadecimal digits between colons, 6 for Ethernet, 8 or 20 for
/// InfiniBand.
fn is_hardware(word: &str) -> bool {
    matches!(word.split(':').count(), 6 | 8 | 20)
        && word
            .split(':')
            .all(|pair| pair.len() == 2 && pair.bytes().all(|b| b.is_ascii_hexdigit()))
}

/// Whether an address is a network mask such as `255.255.252.0`.
fn is_mask(ip: Ipv4Addr) -> bool {
    let bits = u32::from(ip);
    bits.leading_ones() >= 8 && bits.leading_ones() + bits.trailing_zeros() == 32
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;
    use std::fs;

    fn scrub(names: &[(&str, &str)]) -> Scrub {
        let owned = names.iter().map(|(a, b)| ((*a).to_owned(), (*b).to_owned()));
        Scrub::with(owned.collect())
    }

    #[test]
    fn names_are_replaced_where_they_stand_alone() {
        let scrub = scrub(&[("alice", "user1")]);
        assert_eq!(scrub.text("/oar/alice_12/x malice alice"), "/oar/user1_12/x malice user1");
        assert_eq!(scrub.bytes(b"\xff alice"), b"\xff alice");
    }

    #[test]
    fn a_machines_name_may_be_short_and_no_number_or_word_of_the_kernel_is_one() {
        let names = [("n7", "node-1"), ("7", "node-1"), ("cpu", "node-1")];
        assert_eq!(
            scrub(&names).text("n7 7 cpu 7 n77 an7 n7.site"),
            "node-1 7 cpu 7 n77 an7 node-1.site"
        );
    }

    #[test]
    fn addresses_are_replaced_and_remain_apart() {
        let scrub = scrub(&[]);
        assert_eq!(
            scrub.text("eth0 aa:bb:cc:dd:ee:0f up AA:bb:cc:dd:ee:0f aa:bb:cc:dd:ee:10"),
            "eth0 02:00:00:00:00:01 up 02:00:00:00:00:01 02:00:00:00:00:02"
        );
        let infiniband = format!("{}ff", "00:11:22:33:".repeat(4) + "80:00:02:");
        assert_eq!(scrub.text(&infiniband), format!("02:{}00:03", "00:".repeat(17)));
        assert_eq!(
            scrub.text("10.1.2.3:/home addr=10.1.2.3,x 10.1.2.4@o2ib:10.1.2.3@tcp 10.1.2.3:2049"),
            "198.18.0.4:/home addr=198.18.0.4,x 198.18.0.5@o2ib:198.18.0.4@tcp 198.18.0.4:2049"
        );
        assert_eq!(scrub.text("2 fe80::1:2/64 [2001:660::7]."), "2 2001:db8::6/64 [2001:db8::7].");
        // None of these identifies a machine.
        for text in [
            "12:34:56 1:2 0.52 1.2.3",
            "127.0.0.1:80 ::1 0.0.0.0 255.255.252.0",
            "0000:83:00.0",
            "v10.1.2.3",
            "10.1.2.3.4",
            "nid00010.1.2.3",
            "cpu0:1.5:",
            "a:b",
            "::",
            "1.2.3.4.",
        ] {
            let want = if text == "1.2.3.4." { "198.18.0.8." } else { text };
            assert_eq!(scrub.text(text), want);
        }
    }

    #[test]
    fn the_servers_of_mounts_have_names_of_their_own() {
        let dir = tempfile::tempdir().unwrap();
        fs::create_dir_all(dir.path().join("proc/self")).unwrap();
        fs::create_dir_all(dir.path().join("proc/sys/kernel")).unwrap();
        fs::write(dir.path().join("proc/sys/kernel/hostname"), "c1.site\n").unwrap();
        let mounts = "nas.site:/home /home nfs4 rw,addr=10.0.0.9 0 0\n//files/x /x cifs rw 0 0\n\
            10.0.0.1@o2ib,mgs2@o2ib:/scratch /scratch lustre rw 0 0\nproc /proc proc rw 0 0\n";
        fs::write(dir.path().join("proc/self/mounts"), mounts).unwrap();
        let scrub = Scrub::of(&Root::recorded(dir.path()).unwrap());
        let text = scrub.text(mounts);
        for name in ["nas", "files", "mgs2", "10.0.0", "site"] {
            assert!(!text.contains(name), "{name}: {text}");
        }
        assert!(text.contains(":/home /home nfs4") && text.contains("proc /proc proc"), "{text}");
        assert_eq!(scrub.text("c1 xc1 nas"), scrub.text("c1 xc1 nas.site"));
        assert!(scrub.text("on c1.site").ends_with("node-1"));
    }

    #[test]
    fn sockets_keep_their_states_alone() {
        let line =
            "   0: 0100007F:1F90 0A01A8C0:C350 01 00000000:00000000 00:00000000 00000000  1000\n";
        let present = String::from_utf8(tcp(line.as_bytes())).unwrap();
        assert_eq!(
            present,
            "   0: 00000000:0000 00000000:0000 01 00000000:00000000 00:00000000 00000000  1000\n"
        );
    }

    proptest! {
        #[test]
        fn no_text_panics_and_no_address_is_left(text in ".{0,60}", ip in any::<u32>()) {
            let scrub = scrub(&[("ab", "c")]);
            scrub.text(&text);
            tcp(text.as_bytes());
            let ip = Ipv4Addr::from(ip);
            let present = scrub.text(&format!("x {ip} y"));
            let is_left = present.contains(&format!(" {ip} "));
            prop_assert!(!is_left || scrub.other(&ip.to_string()).is_none() || ip.octets()[0] == 198);
        }
    }
}
