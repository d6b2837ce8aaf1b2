//! The output `elasticsearch`, for Elasticsearch and OpenSearch (decision 0063).
//!
//! - `settings`: the options. `client`: requests with authentication, TLS and limits.
//! - `document`: a document and its ID. `encoding`: the documents of a portion.
//! - `bulk`: requests of many documents, and what became of each. `look_up`: what an index has already.
//! - `setup`: template, policy and mapping. `writer`: all of it together.

mod bulk;
mod client;
mod document;
mod encoding;
mod look_up;
mod settings;
mod setup;
mod writer;

use crate::spec::{Guarantee, OpenFill, Output, Spec, WriteError};
use client::Client;
use config::OutputConfig;
use settings::Settings;
use std::path::Path;

/// The kind.
pub(super) const SPEC: Spec = Spec {
    name: "elasticsearch",
    help: "Elasticsearch (from 7.9) or OpenSearch: a data stream with an index template, or Colmet's indices and documents.",
    guarantee_help: "kept: the server has acknowledged each document, each once",
    options: settings::OPTIONS,
    guarantee: |_| Guarantee::Kept,
    check,
    records: settings::layout,
    open,
    fill,
    ..Spec::DEFAULT
};

/// Documents that the index has already are not stored twice. Records of Colmet are not made of a time range.
fn fill(config: &OutputConfig) -> Result<OpenFill, &'static str> {
    match settings::layout(config) {
        None => Ok(|config, folder, _| open(config, folder)),
        Some(_) => Err("Colmet's documents are made of live samples only"),
    }
}

fn check(config: &OutputConfig) -> Vec<(&'static str, String)> {
    match Settings::of(config) {
        Err(wrong) => wrong,
        Ok(settings) => Client::new(&settings).err().into_iter().collect(),
    }
}

fn open(config: &OutputConfig, _: &Path) -> Result<Box<dyn Output>, WriteError> {
    let settings = Settings::of(config).map_err(|wrong| {
        let all: Vec<String> = wrong.into_iter().map(|(_, what)| what).collect();
        WriteError::new(all.join("; "))
    })?;
    let client = Client::new(&settings).map_err(|(_, what)| WriteError::new(what))?;
    let Settings { name, address, .. } = &settings;
    if !address.is_plain() && !settings.verifies {
        log::warn!("output `{name}`: the certificate of {} is not verified", address.as_str());
    }
    if address.is_plain() && !address.is_local() && settings.authentication.is_some() {
        log::warn!(
            "output `{name}`: everyone on the way can read the secret: {}",
            address.as_str()
        );
    }
    Ok(Box::new(writer::Writer::new(settings, client)))
}
