//! `/proc/PID/fdinfo/N` of an open GPU: the usage of its client (Documentation/gpu/drm-usage-stats.rst, Linux 5.14
//! and later; drivers/gpu/drm/amd/amdgpu/amdgpu_fdinfo.c), and the nodes of AMD's compute driver
//! (drivers/gpu/drm/amd/amdkfd/kfd_topology.c).
//!
//! ```text
//! pos:    0
//! drm-driver:     amdgpu
//! drm-client-id:  71
//! drm-pdev:       0000:83:00.0
//! drm-memory-vram:        2097152 KiB
//! drm-engine-gfx: 81536842 ns
//! ```
//!
//! Two descriptors with the same client and device are one client. Engine times may decrease for a moment; the
//! larger value counts until it is exceeded. `drm-resident-…` is the newer name of `drm-memory-…`.

use crate::parse::{Fields, ParseError, lines, number, whole_lines};

/// A client of a GPU.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct DrmClient<'a> {
    /// The driver.
    pub driver: &'a [u8],
    /// The device's address on the PCI bus, `0000:83:00.0`; empty if it has none.
    pub device: &'a [u8],
    /// Its ID, unique within the device.
    pub id: u64,
    text: &'a [u8],
}

/// Reads the text of a descriptor; `None` if it is not a client of a GPU, or has no ID.
///
/// # Errors
/// The text is truncated, or its ID is not a number.
pub fn drm_client(text: &[u8]) -> Result<Option<DrmClient<'_>>, ParseError> {
    whole_lines(text).map(drop)?;
    let (Some(driver), Some(id)) = (value(text, b"drm-driver"), value(text, b"drm-client-id"))
    else {
        return Ok(None);
    };
    let id = number(id).ok_or_else(|| ParseError::at(id))?;
    let device = value(text, b"drm-pdev").unwrap_or_default();
    Ok(Some(DrmClient { driver, device, id, text }))
}

impl<'a> DrmClient<'a> {
    /// The engines with the nanoseconds that each worked for the client; other lines are skipped.
    pub fn engines(&self) -> impl Iterator<Item = (&'a str, u64)> {
        lines(self.text).filter_map(|line| {
            let (key, text) = pair(line)?;
            let name = std::str::from_utf8(key.strip_prefix(b"drm-engine-")?).ok()?;
            let mut fields = Fields::of(text);
            let nanos = fields.number().ok()?;
            // `drm-engine-capacity-…` has no unit.
            (fields.word() == Ok(b"ns")).then_some((name, nanos))
        })
    }

    /// Its bytes in a region of memory, `vram` or `gtt`; `None` if the driver does not report it.
    pub fn memory_bytes(&self, region: &str) -> Option<u64> {
        let found = lines(self.text).find_map(|line| {
            let (key, text) = pair(line)?;
            let old = key.strip_prefix(b"drm-memory-");
            let of = old.or_else(|| key.strip_prefix(b"drm-resident-"))?;
            (of == region.as_bytes()).then_some(text)
        })?;
        let mut fields = Fields::of(found);
        let count = fields.number().ok()?;
        let unit = match fields.word() {
            Err(_) => 1,
            Ok(b"KiB") => 1 << 10,
            Ok(b"MiB") => 1 << 20,
            Ok(_) => return None,
        };
        count.checked_mul(unit)
    }
}

/// A GPU as AMD's compute driver sees it: `/sys/class/kfd/kfd/topology/nodes/N/properties`.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct KfdNode {
    /// PCI domain.
    pub domain: u64,
    /// Bus, device and function, as 8, 5 and 3 bits.
    pub location: u64,
}

impl KfdNode {
    /// Its PCI address in the usual form: `0000:83:00.0`.
    pub fn pci(&self) -> String {
        let (bus, device) = (self.location >> 8 & 0xff, self.location >> 3 & 0x1f);
        format!("{:04x}:{bus:02x}:{device:02x}.{}", self.domain, self.location & 7)
    }
}

/// Reads the properties of a node; before Linux 5.3 there is no domain, which is then 0.
///
/// # Errors
/// The text is truncated, or has no location.
pub fn kfd_node(text: &[u8]) -> Result<KfdNode, ParseError> {
    let (mut domain, mut location) = (0, None);
    for line in whole_lines(text)? {
        let mut fields = Fields::of(line);
        match fields.word()? {
            b"domain" => domain = fields.number()?,
            b"location_id" => location = Some(fields.number()?),
            _ => {}
        }
    }
    let location = location.ok_or_else(|| ParseError::at(text))?;
    Ok(KfdNode { domain, location })
}

fn value<'a>(text: &'a [u8], key: &[u8]) -> Option<&'a [u8]> {
    lines(text).find_map(|line| pair(line).filter(|(of, _)| *of == key).map(|(_, value)| value))
}

fn pair(line: &[u8]) -> Option<(&[u8], &[u8])> {
    let colon = line.iter().position(|byte| *byte == b':')?;
    let (key, rest) = line.split_at_checked(colon)?;
    Some((key.trim_ascii(), rest.get(1..)?.trim_ascii()))
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    const OLD: &str = "pos:\t0\nflags:\t02100002\nmnt_id:\t26\nino:\t615\npasid:\t32771\n\
        drm-driver:\tamdgpu\ndrm-pdev:\t0000:83:00.0\ndrm-client-id:\t71\ndrm-memory-vram:\t2097152 KiB\n\
        drm-memory-gtt: \t16 MiB\namd-requested-gtt:\t16384 KiB\ndrm-engine-gfx:\t81536842 ns\n\
        drm-engine-compute:\t7 ns\ndrm-engine-capacity-compute:\t4\n";
    const NEW: &str = "drm-driver:\tamdgpu\ndrm-client-id:\t9\ndrm-client-name:\tx\ndrm-pdev:\t0000:c3:00.0\n\
        drm-total-vram:\t9 MiB\ndrm-shared-vram:\t0\ndrm-resident-vram:\t4096\ndrm-engine-dma:\t1 ns\n";

    #[test]
    fn a_client_of_a_gpu() {
        let client = drm_client(OLD.as_bytes()).unwrap().unwrap();
        assert_eq!(
            (client.driver, client.device, client.id),
            (&b"amdgpu"[..], &b"0000:83:00.0"[..], 71)
        );
        assert_eq!(client.memory_bytes("vram"), Some(2 << 30));
        assert_eq!(client.memory_bytes("gtt"), Some(16 << 20));
        assert_eq!(client.memory_bytes("cpu"), None);
        let engines: Vec<_> = client.engines().collect();
        assert_eq!(engines, [("gfx", 81_536_842), ("compute", 7)]);
        let client = drm_client(NEW.as_bytes()).unwrap().unwrap();
        assert_eq!((client.id, client.memory_bytes("vram")), (9, Some(4096)));
        assert_eq!(client.engines().collect::<Vec<_>>(), [("dma", 1)]);
    }

    #[test]
    fn texts_without_a_client_and_truncated_ones() {
        assert_eq!(drm_client(b"pos:\t0\nflags:\t02\n"), Ok(None));
        assert_eq!(drm_client(b""), Ok(None));
        assert!(drm_client(b"drm-driver:\ti915\ndrm-client-id:\t-1\n").is_err());
        let large =
            b"drm-driver:\tx\ndrm-client-id:\t1\ndrm-memory-vram:\t18446744073709551615 KiB\n";
        assert_eq!(drm_client(large).unwrap().unwrap().memory_bytes("vram"), None);
        for cut in 1..OLD.len() {
            let whole = OLD.as_bytes()[cut - 1] == b'\n';
            assert_eq!(drm_client(&OLD.as_bytes()[..cut]).is_ok(), whole, "{cut}");
        }
    }

    #[test]
    fn a_node_of_the_compute_driver() {
        let node =
            kfd_node(b"cpu_cores_count 0\nlocation_id 33536\ndomain 1\ndrm_render_minor 128\n");
        assert_eq!(node.map(|node| node.pci()), Ok("0001:83:00.0".to_owned()));
        assert_eq!(KfdNode { domain: 0, location: 0xc3 << 8 | 2 << 3 | 1 }.pci(), "0000:c3:02.1");
        assert!(kfd_node(b"domain 0\n").is_err() && kfd_node(b"location_id 33536").is_err());
        assert!(kfd_node(b"location_id x\n").is_err());
    }

    proptest! {
        #[test]
        fn no_bytes_panic(bytes in prop::collection::vec(any::<u8>(), 0..300)) {
            kfd_node(&bytes).ok();
            if let Ok(Some(client)) = drm_client(&bytes) {
                client.engines().for_each(drop);
            }
        }

        #[test]
        fn no_words_panic(
            words in "(drm-driver|drm-client-id|drm-engine-|drm-memory-vram|:|[0-9]{1,20}|KiB|ns|\n| ){0,40}"
        ) {
            kfd_node(words.as_bytes()).ok();
            if let Ok(Some(client)) = drm_client(words.as_bytes()) {
                client.memory_bytes("vram");
                client.engines().for_each(drop);
            }
        }
    }
}
