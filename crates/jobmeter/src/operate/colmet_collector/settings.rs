//! The file of settings of a server that does what the options of `colmet-collector` list.

use super::options::Options;
use anyhow::{Context, bail};
use config::paths::STORE_DIR;
use std::fmt::Write as _;
use std::net::SocketAddr;
use std::path::Path;

/// The text of the file. Paths become absolute.
///
/// # Errors
/// Options that contradict each other, or that jobmeter cannot do.
pub(super) fn text(options: &Options, data: &Path) -> anyhow::Result<String> {
    let own = &options.own;
    if !options.enable_stdout_backend
        && options.hdf5_filepath.is_none()
        && options.elastic_host.is_none()
    {
        bail!("no output; add --enable-stdout-backend, --hdf5-filepath FILE or --elastic-host URL");
    }
    check_address(options)?;
    let mut text = Text("# Written by `jobmeter colmet-collector` at each start.\n".to_owned());
    text.many("listen", &[&own.listen]);
    text.one("data", path(&data.join(STORE_DIR))?);
    text.table("log");
    text.one("level", options.verbosity.level());
    text.table("inputs.colmet");
    text.many("listen", &[&options.zeromq_bind_uri]);
    text.one("cluster", &own.cluster);
    own.hosts.iter().for_each(|hosts| text.one("hosts", hosts));
    if !own.networks.is_empty() {
        text.many("networks", &own.networks);
    }
    if let Some(dir) = &own.mapping_dir {
        text.one("mapping_dir", path(&absolute(dir)?)?);
    }
    if options.enable_stdout_backend {
        text.output("stdout", "file", options);
        text.one("path", "-");
        text.one("format", "colmet");
    }
    hdf5(options, &mut text)?;
    elasticsearch(options, &mut text)?;
    Ok(text.0)
}

/// Rejects what the settings would reject, with the options that repair it.
fn check_address(options: &Options) -> anyhow::Result<()> {
    let uri = &options.zeromq_bind_uri;
    let address = uri.strip_prefix("tcp://").unwrap_or(uri);
    let is_beyond = address.starts_with("*:")
        || address.parse().is_ok_and(|address: SocketAddr| !address.ip().is_loopback());
    if is_beyond && (options.own.hosts.is_none() || options.own.networks.is_empty()) {
        bail!(
            "--zeromq-bind-uri {uri}: every machine that reaches this address could send values for any node, because Colmet's \
             protocol authenticates nothing: add the nodes and their networks, such as --hosts 'dahu-[1-32]' --networks 10.1.0.0/16; \
             or listen on this machine only, with --zeromq-bind-uri tcp://127.0.0.1:5556"
        );
    }
    Ok(())
}

fn hdf5(options: &Options, text: &mut Text) -> anyhow::Result<()> {
    let Some(file) = &options.hdf5_filepath else { return Ok(()) };
    text.output("hdf5", "hdf5", options);
    text.one("path", path(&absolute(file)?)?);
    text.one("complevel", &options.hdf5_complevel.to_string());
    // Without compression Colmet ignores the name of the library, too.
    if options.hdf5_complevel > 0 {
        if options.hdf5_complib != "zlib" {
            bail!("--hdf5-complib {}: the only library is zlib", options.hdf5_complib);
        }
        text.one("complib", &options.hdf5_complib);
    }
    text.one("mode", &options.own.hdf5_mode);
    options.own.hdf5_group.iter().for_each(|group| text.one("group", group));
    Ok(())
}

fn elasticsearch(options: &Options, text: &mut Text) -> anyhow::Result<()> {
    let Some(host) = &options.elastic_host else { return Ok(()) };
    text.output("elasticsearch", "elasticsearch", options);
    // Colmet's help has no scheme, and its program needs one.
    let scheme = if host.contains("://") { "" } else { "http://" };
    text.one("address", &format!("{scheme}{host}"));
    text.one("layout", "colmet");
    text.one("index", &options.elastic_index_prefix);
    if let Some(file) = &options.http_credentials {
        text.one("auth", "basic");
        text.one("auth_file", path(&absolute(file)?)?);
    }
    if options.no_check_certificates {
        text.0.push_str("verify = false\n");
    }
    let uids: Vec<String> = options.own.elastic_server_uids.iter().map(u32::to_string).collect();
    if !uids.is_empty() {
        text.many("server_uids", &uids);
    }
    Ok(())
}

fn absolute(path: &Path) -> anyhow::Result<std::path::PathBuf> {
    std::path::absolute(path).with_context(|| path.display().to_string())
}

fn path(path: &Path) -> anyhow::Result<&str> {
    path.to_str().with_context(|| format!("{}: the path is not UTF-8", path.display()))
}

/// A file of settings.
struct Text(String);

impl Text {
    fn table(&mut self, name: &str) {
        // Writing to a string cannot fail.
        writeln!(self.0, "\n[{name}]").ok();
    }

    /// An output that has Colmet's records.
    fn output(&mut self, name: &str, kind: &str, options: &Options) {
        self.table(&format!("outputs.{name}"));
        self.one("kind", kind);
        self.one("cluster", &options.own.cluster);
        options.own.domain.iter().for_each(|domain| self.one("domain", domain));
    }

    fn one(&mut self, key: &str, value: &str) {
        writeln!(self.0, "{key} = {}", quoted(value)).ok();
    }

    fn many(&mut self, key: &str, values: &[impl AsRef<str>]) {
        let values: Vec<String> = values.iter().map(|value| quoted(value.as_ref())).collect();
        writeln!(self.0, "{key} = [{}]", values.join(", ")).ok();
    }
}

/// A string of JSON, which is one of TOML except for the last of ASCII's control characters.
fn quoted(text: &str) -> String {
    serde_json::Value::from(text).to_string().replace('\u{7f}', "\\u007f")
}

#[cfg(test)]
#[path = "settings_tests.rs"]
mod tests;
