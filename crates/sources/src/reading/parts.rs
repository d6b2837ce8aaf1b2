//! Parts of a device that come and go, such as disks and interfaces: which of them are read, and the start of
//! their counters.

use crate::{Options, PartState, SourceError};
use kernel::Root;
use model::Timestamp;
use model::setting::{Kind, OptionSpec};

/// The options `include` and `exclude`.
#[derive(Debug)]
pub(crate) struct Choice {
    include: Vec<Box<str>>,
    exclude: Vec<Box<str>>,
}

/// Disks that are left out by default: in memory or a file, removable, or made of other disks,
/// which count the same bytes.
pub(crate) const LESSER_DISKS: &str = "loop*,ram*,zram*,fd*,sr*,dm-*,md*";

/// The option `include`: only these parts; names, or patterns with `*`.
pub(crate) const fn include(help: &'static str) -> OptionSpec {
    OptionSpec { name: "include", kind: Kind::List("WORD"), default: "", help }
}

/// The option `exclude`: parts to leave out if [`include`] is empty.
pub(crate) const fn exclude(default: &'static str, help: &'static str) -> OptionSpec {
    OptionSpec { name: "exclude", kind: Kind::List("WORD"), default, help }
}

impl Choice {
    /// The options `include` and `exclude`, names or patterns with `*`.
    pub(crate) fn of(options: &Options) -> Self {
        let words = |name| options.words(name).into_iter().map(Box::from).collect();
        Self { include: words("include"), exclude: words("exclude") }
    }

    /// The state of the part `include` after a reading: absent if the option is set and chose nothing, which `nothing`
    /// describes.
    pub(crate) fn state(&self, is_any_shown: bool, nothing: &'static str) -> PartState {
        if self.include.is_empty() || is_any_shown {
            return PartState::Ok;
        }
        PartState::Not(SourceError::absent(nothing))
    }

    /// Whether the options include a name; `None` if they do not decide. `include` takes precedence over
    /// `exclude`.
    pub(crate) fn includes(&self, name: &str) -> Option<bool> {
        if !self.include.is_empty() {
            return Some(any_matches(&self.include, name));
        }
        any_matches(&self.exclude, name).then_some(false)
    }
}

/// The option to read every processor separately; the help states the additional cost.
pub(crate) const fn cores(help: &'static str) -> OptionSpec {
    OptionSpec { name: "cores", kind: Kind::Switch, default: "false", help }
}

/// Which network interfaces are read.
#[derive(Debug)]
pub(crate) struct InterfaceChoice {
    choice: Choice,
    virtual_too: bool,
}

impl InterfaceChoice {
    pub(crate) const INCLUDE: OptionSpec = include(
        "Only these interfaces: names, or patterns with `*`; empty means every interface with hardware except those of `exclude`.",
    );
    pub(crate) const EXCLUDE: OptionSpec = exclude(
        "lo",
        "Interfaces to leave out if `include` is empty: names, or patterns with `*`.",
    );
    pub(crate) const VIRTUAL: OptionSpec = OptionSpec {
        name: "virtual",
        kind: Kind::Switch,
        default: "false",
        help: "Also interfaces without hardware of their own.",
    };

    /// Reads the options; `virtual_too` includes interfaces without hardware regardless of the options.
    pub(crate) fn of(options: &Options, virtual_too: bool) -> Self {
        let virtual_too = virtual_too || options.switch("virtual");
        Self { choice: Choice::of(options), virtual_too }
    }

    /// The state of the part `include`, as [`Choice::state`].
    pub(crate) fn state(&self, is_any_shown: bool, nothing: &'static str) -> PartState {
        self.choice.state(is_any_shown, nothing)
    }

    /// Whether an interface is to be read.
    pub(crate) fn shows(&self, root: &Root, name: &str) -> bool {
        let has_hardware = || root.stat(&format!("sys/class/net/{name}/device/uevent")).is_ok();
        self.choice.includes(name).unwrap_or_else(|| self.virtual_too || has_hardware())
    }
}

/// Whether a name matches one of the patterns.
pub(crate) fn any_matches(patterns: &[Box<str>], name: &str) -> bool {
    patterns.iter().any(|pattern| matches(pattern.as_bytes(), name.as_bytes()))
}

/// Whether a name matches a pattern; `*` matches any text, including the empty one.
fn matches(mut pattern: &[u8], mut name: &[u8]) -> bool {
    // After a `*`: where to continue if the rest does not match here.
    let mut retry: Option<(&[u8], &[u8])> = None;
    loop {
        match (pattern.split_first(), name.split_first()) {
            (Some((b'*', rest)), _) => {
                retry = Some((rest, name));
                pattern = rest;
            }
            (Some((p, p_rest)), Some((n, n_rest))) if p == n => (pattern, name) = (p_rest, n_rest),
            (None, None) => return true,
            _ => {
                let Some((after_star, from)) = retry else { return false };
                let Some((_, shorter)) = from.split_first() else { return false };
                retry = Some((after_star, shorter));
                (pattern, name) = (after_star, shorter);
            }
        }
    }
}

/// The parts seen at the last reading, in the order of the kernel's file.
///
/// The counters of a part present at the first reading start at boot: its first appearance is unknown, and
/// only growth since then matters. A part that appears later was absent at the previous reading, so its
/// counters were zero then: that is their start.
#[derive(Debug, Default)]
pub(crate) struct Roster {
    parts: Vec<Part>,
    place: usize,
    read_at: Option<Timestamp>,
}

#[derive(Debug)]
struct Part {
    name: Box<[u8]>,
    label: Box<str>,
    start: Timestamp,
    shown: bool,
    seen: bool,
}

impl Roster {
    /// Begins a reading.
    pub(crate) fn begin(&mut self, boot: Timestamp) {
        if self.read_at.is_some_and(|read_at| boot > read_at) {
            *self = Self::default();
        }
        self.place = 0;
        self.parts.iter_mut().for_each(|part| part.seen = false);
    }

    /// The label and start of a part if it is read; `shown` is called once for each part.
    pub(crate) fn see(
        &mut self,
        name: &[u8],
        boot: Timestamp,
        shown: impl FnOnce(&str) -> bool,
    ) -> Option<(&str, Timestamp)> {
        self.see_as(name, boot, shown, |name| String::from_utf8_lossy(name).into_owned())
    }

    /// As [`Self::see`], for a part with a label that is derived from its name, once.
    pub(crate) fn see_as(
        &mut self,
        name: &[u8],
        boot: Timestamp,
        shown: impl FnOnce(&str) -> bool,
        label: impl FnOnce(&[u8]) -> String,
    ) -> Option<(&str, Timestamp)> {
        let is_it = |part: &Part| *part.name == *name;
        let place = match self.parts.get(self.place) {
            Some(part) if is_it(part) => self.place,
            _ => self.parts.iter().position(is_it).unwrap_or_else(|| {
                let label = label(name).into_boxed_str();
                let shown = shown(&label);
                let start = self.read_at.unwrap_or(boot);
                let place = self.place.min(self.parts.len());
                self.parts
                    .insert(place, Part { name: name.into(), label, start, shown, seen: true });
                place
            }),
        };
        self.place = place + 1;
        let part = self.parts.get_mut(place)?;
        part.seen = true;
        part.shown.then_some((&*part.label, part.start))
    }

    /// Whether any part is read.
    pub(crate) fn is_any_shown(&self) -> bool {
        self.parts.iter().any(|part| part.shown)
    }

    /// Ends a reading: removes parts that were not seen in it.
    pub(crate) fn end(&mut self, now: Timestamp) {
        self.parts.retain(|part| part.seen);
        self.read_at = Some(now);
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    #[test]
    fn patterns() {
        for (pattern, name, fits) in [
            ("sda", "sda", true),
            ("sda", "sda1", false),
            ("sd*", "sda1", true),
            ("sd*", "sd", true),
            ("*1", "sda1", true),
            ("*1", "sda12", false),
            ("nvme*n*", "nvme0n1", true),
            ("a*b*c", "a1b2b3c", true),
            ("a*b*c", "a1c2b", false),
            ("*", "", true),
            ("", "", true),
            ("", "a", false),
            ("**", "x", true),
        ] {
            assert_eq!(matches(pattern.as_bytes(), name.as_bytes()), fits, "{pattern} {name}");
        }
    }

    static SPECS: &[OptionSpec] = &[include(""), exclude("lo, veth*", "")];

    #[test]
    fn include_takes_precedence_over_exclude() {
        let mut options = Options::defaults(SPECS);
        let choice = Choice::of(&options);
        assert_eq!(
            ["lo", "veth7", "eth0"].map(|n| choice.includes(n)),
            [Some(false), Some(false), None]
        );
        options.set("x", SPECS, "include", "lo,ib*").unwrap();
        let choice = Choice::of(&options);
        assert_eq!(
            ["lo", "ib0", "eth0"].map(|n| choice.includes(n)),
            [Some(true), Some(true), Some(false)]
        );
    }

    fn read(roster: &mut Roster, now: i64, names: &[&str]) -> Vec<(String, i64)> {
        roster.begin(Timestamp(10));
        let mut seen = Vec::new();
        for name in names {
            let shown = |label: &str| label != "hidden";
            if let Some((label, start)) = roster.see(name.as_bytes(), Timestamp(10), shown) {
                seen.push((label.to_owned(), start.0));
            }
        }
        roster.end(Timestamp(now));
        seen
    }

    #[test]
    fn a_part_that_appears_later_starts_at_the_previous_reading() {
        let mut roster = Roster::default();
        let own = |seen: &[(&str, i64)]| -> Vec<(String, i64)> {
            seen.iter().map(|(name, start)| ((*name).to_owned(), *start)).collect()
        };
        assert_eq!(read(&mut roster, 100, &["a", "hidden", "c"]), own(&[("a", 10), ("c", 10)]));
        assert_eq!(
            read(&mut roster, 200, &["a", "b", "hidden", "c"]),
            own(&[("a", 10), ("b", 100), ("c", 10)])
        );
        assert_eq!(read(&mut roster, 300, &["c", "a"]), own(&[("c", 10), ("a", 10)]));
        assert_eq!(
            read(&mut roster, 400, &["a", "b", "c"]),
            own(&[("a", 10), ("b", 300), ("c", 10)])
        );
        assert_eq!(roster.parts.len(), 3);
    }

    #[test]
    fn after_a_reboot_every_part_starts_at_the_new_boot() {
        let mut roster = Roster::default();
        read(&mut roster, 100, &["a"]);
        read(&mut roster, 200, &["a", "b"]);
        roster.begin(Timestamp(250));
        let always = |_: &str| true;
        assert_eq!(roster.see(b"b", Timestamp(250), always), Some(("b", Timestamp(250))));
    }

    proptest! {
        #[test]
        fn a_name_matches_itself_and_its_prefix_with_a_star(name in "[a-c*]{0,8}", cut in 0_usize..8) {
            prop_assert!(matches(name.as_bytes(), name.as_bytes()));
            let beginning = name.get(..cut.min(name.len())).unwrap_or_default();
            let pattern = format!("{beginning}*");
            prop_assert!(matches(pattern.as_bytes(), name.as_bytes()));
        }
    }
}
