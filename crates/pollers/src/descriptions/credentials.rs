//! Named secrets: the key `credential` of an entry.

use crate::url::UrlParts;
use config::read_secret_file;
use std::path::PathBuf;

/// Folder of the secrets, unless systemd passes them.
const FOLDER: &str = "/etc/jobmeter/credentials";
/// The variable by which systemd names the folder of a unit's credentials (`LoadCredential=`).
const OF_SYSTEMD: &str = "CREDENTIALS_DIRECTORY";

/// Puts a secret in its place in a URL: the community of SNMP version 1 and 2c, the keys of version 3, otherwise the
/// password. A second line of the file is the key of the encryption of SNMP, or the key of a BMC.
///
/// # Errors
/// The file cannot be read, others can read it, or the URL has no place for it.
pub(super) fn insert(name: &str, parts: &mut UrlParts) -> Result<(), String> {
    place(&read(name)?, parts)
}

fn place(text: &str, parts: &mut UrlParts) -> Result<(), String> {
    let mut lines = text.lines().map(str::trim_end).filter(|line| !line.is_empty());
    let first = lines.next().ok_or("the secret is empty")?.to_owned();
    let second = lines.next().map(str::to_owned);
    let has = |name: &str| parts.parameter(name).is_some();
    let double = || Err("the URL has a secret, too; remove one of them".to_owned());
    match &*parts.scheme {
        "snmp" | "snmpv1" if parts.user.is_some() => return double(),
        "snmp" | "snmpv1" => parts.user = Some(first),
        "snmpv3" if has("authkey") || has("privkey") => return double(),
        "snmpv3" => {
            let key = second.unwrap_or_else(|| first.clone());
            let keys = [("auth", "authkey", first), ("priv", "privkey", key)];
            for (protocol, key, value) in keys {
                if parts.parameter(protocol).is_some() {
                    parts.query.push((key.to_owned(), value));
                }
            }
        }
        "modbus" => return Err("Modbus has no secrets".to_owned()),
        _ if parts.password.is_some() => return double(),
        _ => {
            parts.password = Some(first);
            if let Some(key) = second.filter(|_| parts.scheme == "ipmisensor") {
                parts.query.push(("kg".to_owned(), key));
            }
        }
    }
    Ok(())
}

fn read(name: &str) -> Result<String, String> {
    let of_systemd = std::env::var_os(OF_SYSTEMD).map(|folder| PathBuf::from(folder).join(name));
    let path = of_systemd.filter(|path| path.try_exists().unwrap_or(false));
    let path = path.unwrap_or_else(|| PathBuf::from(FOLDER).join(name));
    read_secret_file(&path).map_err(|error| error.to_string())
}

#[cfg(test)]
mod tests {
    use super::*;

    fn placed(url: &str, text: &str) -> Result<UrlParts, String> {
        let mut parts = UrlParts::parse(url)?;
        place(text, &mut parts).map(|()| parts)
    }

    #[test]
    fn a_secret_takes_its_place_in_the_url() {
        let secret = "s3cret\n k2 \n";
        let user = |url: &str| placed(url, secret).unwrap().user;
        assert_eq!(user("snmp://sw/1.3"), Some("s3cret".to_owned()));
        let parts = placed("ipmisensor://root@bmc/1", secret).unwrap();
        assert_eq!(
            (parts.password.as_deref(), parts.parameter("kg")),
            (Some("s3cret"), Some(" k2"))
        );
        let parts = placed("https://u@bmc/a#b", "one").unwrap();
        assert_eq!((parts.user.as_deref(), parts.password.as_deref()), (Some("u"), Some("one")));
        let url = "snmpv3://u@sw/1.3?auth=sha256&priv=aes128";
        let keys = |text: &str| {
            let parts = placed(url, text).unwrap();
            ["authkey", "privkey"].map(|key| parts.parameter(key).unwrap().to_owned())
        };
        assert_eq!(keys("one\ntwo"), ["one", "two"]);
        assert_eq!(keys("one"), ["one", "one"]);
        assert!(placed("snmpv3://u@sw/1.3", secret).unwrap().query.is_empty());
    }

    #[test]
    fn a_secret_without_a_place_is_an_error_that_does_not_show_it() {
        for url in ["snmp://public@sw/1.3", "http://u:p@bmc/a#b", "modbus://m/1/0/be_be_u16"] {
            let error = placed(url, "s3cret").unwrap_err();
            assert!(!error.contains("s3cret") && !error.is_empty(), "{error}");
        }
        assert_eq!(placed("snmp://sw/1.3", "\n\n").unwrap_err(), "the secret is empty");
        let error = read("no-such-secret").unwrap_err();
        assert!(error.contains("/credentials/no-such-secret"), "{error}");
    }
}
