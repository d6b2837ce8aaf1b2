//! The reference of the agent's settings says what the program says. `UPDATE_DOCS=1` rewrites it.

use std::fs;
use std::path::Path;

const HEAD: &str = "# Settings of the agent

Every setting is a key of `/etc/jobmeter/agent.toml` (another file with `--config` or
`JOBMETER_AGENT_CONFIG`), an environment variable and a flag. A flag comes before a variable, a variable
before the file, the file before the default. None is needed. Times are written `500ms`, `30s`, `2m` or
`7d`, sizes `64MiB`. SIGHUP reads the file anew.

`jobmeter check FILE --for agent` lists what is wrong with a file, and prints what results from it with the
origin of each value. Generated from the settings themselves by `make docs`.
";

#[test]
fn the_reference_of_the_settings_is_fresh() {
    let settings = config::agent_settings(&agent::source_settings());
    let text = format!("{HEAD}{}", config::reference(&settings));
    let file = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../docs/reference/config-agent.md");
    if std::env::var_os("UPDATE_DOCS").is_some() {
        fs::write(&file, &text).unwrap();
    }
    let old = fs::read_to_string(&file).unwrap_or_default();
    let differs = old.lines().zip(text.lines()).find(|(old, new)| old != new);
    assert!(old == text, "config-agent.md is stale: {differs:#?}");
}
