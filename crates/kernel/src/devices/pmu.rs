//! `/sys/bus/event_source/devices/PMU/`: the events of a PMU, and their encoding
//! (Documentation/ABI/testing/sysfs-bus-event_source-devices-format and -events, Linux 3.5 and later).
//!
//! ```text
//! cpu/type                           4
//! cpu/format/event                   config:0-7
//! cpu/format/umask                   config:8-15
//! cpu/format/offcore_rsp             config1:0-63
//! cpu/events/cache-misses            event=0x2e,umask=0x41
//! uncore_imc_0/cpumask               0,18
//! uncore_imc_0/events/cas_count_read         event=0x04,umask=0x03
//! uncore_imc_0/events/cas_count_read.scale   6.103515625e-5
//! uncore_imc_0/events/cas_count_read.unit    MiB
//! ```

use crate::devices::perf::Event;

/// Most processors of a list; no kernel is built for more than 8192.
pub const CPUS_MAX: usize = 65_536;

/// The location of a PMU's field: the word, and its bits.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Field {
    word: usize,
    /// Lowest and highest bit of each part, those of the value's lowest bits first.
    parts: Vec<(u32, u32)>,
}

/// A term of an event: `umask=0x41`, or `any`, which is `any=1`.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Term<'a> {
    /// The field.
    pub name: &'a str,
    /// The value; `None` for a bare name.
    pub value: Option<u64>,
}

impl Field {
    /// Reads a file of `format/`: `config:0-7,32-35`.
    pub fn parse(text: &str) -> Option<Self> {
        let (word, bits) = text.trim().split_once(':')?;
        let word = match word {
            "config" => 0,
            "config1" => 1,
            "config2" => 2,
            "config3" => 3,
            _ => return None,
        };
        let part = |part: &str| {
            let (low, high) = part.split_once('-').unwrap_or((part, part));
            let (low, high) = (low.parse().ok()?, high.parse().ok()?);
            (low <= high && high < 64).then_some((low, high))
        };
        let parts = bits.split(',').map(part).collect::<Option<Vec<_>>>()?;
        Some(Self { word, parts })
    }

    /// One of the four words as a whole, which every PMU has as a field: `config1=0x3f`.
    pub fn whole(name: &str) -> Option<Self> {
        Self::parse(&format!("{name}:0-63"))
    }

    /// Puts a value into an event; false if it has more bits than the field.
    #[must_use]
    pub fn put(&self, value: u64, event: &mut Event) -> bool {
        let Some(word) = event.config.get_mut(self.word) else { return false };
        let mut rest = value;
        for (low, high) in &self.parts {
            let bits = high - low + 1;
            let mask = u64::MAX >> (64 - bits);
            *word = (*word & !(mask << low)) | ((rest & mask) << low);
            rest = rest.checked_shr(bits).unwrap_or(0);
        }
        rest == 0
    }
}

/// The terms of an event: `event=0x2e,umask=0x41`.
///
/// # Errors
/// The first malformed term: neither a name, nor a name with a number after `=`.
pub fn terms(text: &str) -> Result<Vec<Term<'_>>, &str> {
    let term = |term| {
        let (name, value) = match str::split_once(term, '=') {
            Some((name, value)) => (name.trim(), Some(parse_number(value.trim()).ok_or(term)?)),
            None => (term.trim(), None),
        };
        let ok = |byte: u8| byte.is_ascii_alphanumeric() || matches!(byte, b'_' | b'-' | b'.');
        if name.is_empty() || !name.bytes().all(ok) { Err(term) } else { Ok(Term { name, value }) }
    };
    text.trim().split(',').map(term).collect()
}

/// A number in decimal, or after `0x` in hexadecimal.
fn parse_number(text: &str) -> Option<u64> {
    let digits = |text: &str, radix| {
        let digits = !text.starts_with('+');
        digits.then(|| u64::from_str_radix(text, radix).ok()).flatten()
    };
    match text.strip_prefix("0x").or_else(|| text.strip_prefix("0X")) {
        Some(hexadecimal) => digits(hexadecimal, 16),
        None => digits(text, 10),
    }
}

/// The processors of a list: `0-3,8`, as in `cpumask` and `/sys/devices/system/cpu/online`.
pub fn cpus(text: &str) -> Option<Vec<u32>> {
    let mut list = Vec::new();
    for part in text.trim().split(',').filter(|part| !part.is_empty()) {
        let (first, last) = part.split_once('-').unwrap_or((part, part));
        let (first, last): (u32, u32) = (first.parse().ok()?, last.parse().ok()?);
        let count = usize::try_from(last.checked_sub(first)?).ok()?;
        if list.len() + count >= CPUS_MAX {
            return None;
        }
        list.extend(first..=last);
    }
    Some(list)
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    fn put(format: &str, value: u64) -> Option<[u64; 4]> {
        let mut event = Event::default();
        Field::parse(format)?.put(value, &mut event).then_some(event.config)
    }

    #[test]
    fn fields_of_several_kernels() {
        assert_eq!(put("config:0-7\n", 0x2e), Some([0x2e, 0, 0, 0]));
        assert_eq!(put("config:8-15", 0x41), Some([0x4100, 0, 0, 0]));
        // AMD's event number is in two parts.
        assert_eq!(put("config:0-7,32-35", 0xfab), Some([0xf_0000_00ab, 0, 0, 0]));
        assert_eq!(put("config:21", 1), Some([1 << 21, 0, 0, 0]));
        assert_eq!(put("config1:0-63", u64::MAX), Some([0, u64::MAX, 0, 0]));
        assert_eq!(put("config3:1-2", 3), Some([0, 0, 0, 6]));
        assert_eq!(put("config:0-7", 0x100), None, "too large");
        for wrong in ["", "config", "config4:0-7", "config:", "config:7-0", "config:64", "config:a"]
        {
            assert_eq!(Field::parse(wrong), None, "{wrong}");
        }
        assert_eq!(Field::whole("config2"), Field::parse("config2:0-63"));
        assert_eq!(Field::whole("umask"), None);
    }

    #[test]
    fn terms_are_names_and_numbers() {
        let read = terms("event=0x2e,umask=65,any\n").unwrap();
        let read: Vec<_> = read.iter().map(|term| (term.name, term.value)).collect();
        assert_eq!(read, [("event", Some(0x2e)), ("umask", Some(65)), ("any", None)]);
        for (wrong, at) in [
            ("", ""),
            ("event=,x", "event="),
            ("a=0xg", "a=0xg"),
            ("core=?", "core=?"),
            ("a b", "a b"),
        ] {
            assert_eq!(terms(wrong), Err(at), "{wrong}");
        }
    }

    #[test]
    fn lists_of_processors() {
        assert_eq!(cpus("0-3,8\n"), Some(vec![0, 1, 2, 3, 8]));
        assert_eq!(cpus("\n"), Some(vec![]));
        for wrong in ["3-0", "a", "0-4294967295", "1-", "-1"] {
            assert_eq!(cpus(wrong), None, "{wrong}");
        }
    }

    proptest! {
        #[test]
        fn no_text_panics(text in "[config0-9:,=x \\-]{0,30}|\\PC{0,30}", value: u64) {
            cpus(&text);
            terms(&text).ok();
            if let Some(field) = Field::parse(&text) {
                let mut event = Event::default();
                let fits = field.put(value, &mut event);
                prop_assert!(fits || value > 0);
            }
        }

        #[test]
        fn a_field_that_takes_a_value_has_it(low in 0_u32..64, bits in 1_u32..=64, value: u64) {
            let high = (low + bits - 1).min(63);
            let field = Field::parse(&format!("config:{low}-{high}")).unwrap();
            let mut event = Event::default();
            if field.put(value, &mut event) {
                prop_assert_eq!(event.config[0] >> low, value);
            }
        }
    }
}
