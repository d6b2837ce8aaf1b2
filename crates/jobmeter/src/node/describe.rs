//! The manual of a source, from its declaration: for a terminal, and for the reference of all sources.

use config::{Setting, SourceSettings};
use model::Metric;
use sources::{Every, SourceSpec};
use std::io::{self, Write};

/// Output format of the manual.
#[derive(Clone, Copy)]
pub(crate) enum ManualFormat {
    /// A terminal.
    Terminal,
    /// The Markdown reference of all sources.
    Markdown,
}

/// Every source with a manual: the agent's sources, the agent's own metrics, and the source of `jobmeter run`.
pub(crate) fn all() -> impl Iterator<Item = &'static SourceSpec> {
    agent::sources().chain([&crate::measure::run::reported::SPEC])
}

/// Writes the generated reference of all sources.
pub(crate) fn reference(out: &mut impl Write) -> io::Result<()> {
    writeln!(out, "# Sources\n")?;
    writeln!(
        out,
        "Metrics and options of every source. Generated from the sources by `make \
                   docs`.\n"
    )?;
    writeln!(out, "| source | measures | read |\n|---|---|---|")?;
    for spec in all() {
        writeln!(out, "| [{0}](#{0}) | {1} | {2} |", spec.name, spec.help, every(spec))?;
    }
    all().try_for_each(|spec| describe(spec, ManualFormat::Markdown, out))
}

/// Writes the manual of one source.
pub(crate) fn describe(
    spec: &SourceSpec,
    look: ManualFormat,
    out: &mut impl Write,
) -> io::Result<()> {
    look.title(spec.name, spec.help, out)?;
    look.fact("reads", &look.words(spec.reads), out)?;
    look.fact("read", &every(spec), out)?;
    look.fact("cost", spec.cost, out)?;
    let settings = settings(spec);
    if !settings.is_empty() {
        let title = format!("settings, in [sources.{}] of the agent's file:", spec.name);
        look.section(&title, ["setting", "default", "meaning"], out)?;
    }
    for (name, setting) in &settings {
        look.setting(name, setting, out)?;
    }
    look.section("metrics:", ["metric", "kind", "unit", "meaning"], out)?;
    spec.metrics.iter().try_for_each(|metric| look.metric(metric, out))
}

impl ManualFormat {
    fn title(self, name: &str, help: &str, out: &mut impl Write) -> io::Result<()> {
        match self {
            Self::Terminal => writeln!(out, "{name}: {help}\n"),
            Self::Markdown => writeln!(out, "\n## {name}\n\n{help}\n"),
        }
    }

    fn words(self, words: &[&str]) -> String {
        match self {
            Self::Terminal => words.join(", "),
            Self::Markdown => format!("`{}`", words.join("`, `")),
        }
    }

    fn fact(self, word: &str, text: &str, out: &mut impl Write) -> io::Result<()> {
        match self {
            Self::Terminal => writeln!(out, "  {word:<9}{text}"),
            Self::Markdown => writeln!(out, "- {word}: {text}"),
        }
    }

    fn section<const N: usize>(
        self,
        title: &str,
        columns: [&str; N],
        out: &mut impl Write,
    ) -> io::Result<()> {
        match self {
            Self::Terminal => writeln!(out, "\n{title}"),
            Self::Markdown => {
                let rule = ["---"; N].join("|");
                writeln!(out, "\n| {} |\n|{rule}|", columns.join(" | "))
            }
        }
    }

    fn setting(self, name: &str, setting: &Setting, out: &mut impl Write) -> io::Result<()> {
        let help = setting.help.trim();
        match self {
            Self::Terminal => {
                let default = setting.default_in_file();
                let without = match &*setting.default {
                    "" if !setting.unset.is_empty() => format!("  # {}", setting.unset),
                    _ => String::new(),
                };
                writeln!(out, "  {name} = {default}{without}\n      {help}")
            }
            Self::Markdown => row(&[&format!("`{name}`"), &setting.default_in_words(), help], out),
        }
    }

    fn metric(self, metric: &Metric, out: &mut impl Write) -> io::Result<()> {
        let (Metric { name, help, .. }, kind, unit) = (metric, metric.kind.word(), unit(metric));
        match self {
            Self::Terminal => writeln!(out, "  {name}  ({kind}, {unit})\n      {help}"),
            Self::Markdown => row(&[&format!("`{name}`"), kind, unit, help], out),
        }
    }
}

fn row(cells: &[&str], out: &mut impl Write) -> io::Result<()> {
    let cells: Vec<String> = cells.iter().map(|cell| cell.replace('|', "\\|")).collect();
    writeln!(out, "| {} |", cells.join(" | "))
}

/// The settings of a source with their names in its table; empty for a source without agent settings.
fn settings(spec: &SourceSpec) -> Vec<(String, Setting)> {
    let of_agent = agent::source_settings();
    let own = of_agent.iter().find(|source| source.name == spec.name);
    let settings = own.map(SourceSettings::settings).unwrap_or_default();
    let prefix = format!("sources.{}.", spec.name);
    let named = |setting: Setting| Some((setting.key.strip_prefix(&prefix)?.to_owned(), setting));
    settings.into_iter().filter_map(named).collect()
}

/// How often an agent reads a source.
pub(crate) fn every(spec: &SourceSpec) -> String {
    match spec.every {
        Every::Tick => "at every tick".to_owned(),
        Every::AtLeast(time) => format!("every {} s at most", time.as_secs_f64()),
    }
}

const fn unit(metric: &Metric) -> &'static str {
    if metric.unit.word().is_empty() { "count" } else { metric.unit.word() }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn manual(name: &str, look: ManualFormat) -> String {
        let mut out = Vec::new();
        describe(all().find(|spec| spec.name == name).unwrap(), look, &mut out).unwrap();
        String::from_utf8(out).unwrap()
    }

    #[test]
    fn the_settings_of_a_manual_are_a_file_that_changes_nothing() {
        let dir = tempfile::tempdir().unwrap();
        let file = dir.path().join("agent.toml");
        let load = |file| {
            let given = config::ConfigInputs { file, environment: &|_| None, flags: Vec::new() };
            agent::load(&given).unwrap().config
        };
        let defaults = load(config::ConfigFile::None);
        for spec in agent::sources() {
            let manual = manual(spec.name, ManualFormat::Terminal);
            let lines =
                manual.lines().filter(|line| line.contains(" = ") && !line.starts_with("    "));
            let table: Vec<&str> = lines.map(str::trim).collect();
            assert!(table.len() >= 4 && table[0] == "enabled = true", "{manual}");
            assert!(table.iter().any(|line| line.starts_with("period = ")), "{manual}");
            assert!(table.contains(&"optional = false"), "{manual}");
            let text = format!("[sources.{}]\n{}\n", spec.name, table.join("\n"));
            std::fs::write(&file, &text).unwrap();
            let mut loaded = load(config::ConfigFile::Given(file.clone()));
            // A written period is exact, while the source's default is a lower bound. The test also ignores the
            // owner of the file.
            for (name, source) in &mut loaded.sources {
                (source.period, source.distrust) = (defaults.sources[name].period, None);
            }
            assert_eq!(loaded.sources, defaults.sources, "{text}");
        }
    }

    #[test]
    fn values_stand_as_a_file_has_them() {
        let manual = manual("filesystem", ManualFormat::Terminal);
        assert!(manual.contains("\n  types = [\"bcachefs\", \"btrfs\", "), "{manual}");
        assert!(manual.contains("\n  include = []"), "{manual}");
        assert!(manual.contains("\n  period_idle = \"\"  # as `period_idle` of all\n"), "{manual}");
    }

    #[test]
    fn both_manuals_have_the_same_content() {
        for spec in all() {
            let (terminal, markdown) = (
                manual(spec.name, ManualFormat::Terminal),
                manual(spec.name, ManualFormat::Markdown),
            );
            for (name, _) in settings(spec) {
                assert!(terminal.contains(&format!("\n  {name} = ")), "{terminal}");
                assert!(markdown.contains(&format!("\n| `{name}` | ")), "{markdown}");
            }
            for metric in spec.metrics {
                assert!(terminal.contains(&format!("\n  {}  (", metric.name)), "{terminal}");
                assert!(markdown.contains(&format!("\n| `{}` | ", metric.name)), "{markdown}");
            }
        }
    }
}
