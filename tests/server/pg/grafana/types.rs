//! The JSON of the dashboards has the types that Grafana publishes (npm `@grafana/schema`).

use super::{dashboards, written};
use crate::common::programs::output;
use crate::repository::layers::repository;
use serde_json::{Value, json};
use std::collections::BTreeSet;
use std::path::Path;
use std::process::Command;

/// The types of a dashboard's JSON. A value of an enumeration is its text in JSON. The published types have no query of
/// a datasource of SQL.
const HEAD: &str = "\
import type { Dashboard, DataQuery, GraphFieldConfig, TableFieldOptions } from '@grafana/schema';

type Json<T> = T extends string ? `${T}` : T extends (infer E)[] ? Json<E>[]
  : T extends object ? { [K in keyof T]: Json<T[K]> } : T;
type SqlQuery = DataQuery & { format: 'table' | 'time_series'; rawSql: string; rawQuery: true; editorMode: 'code' };
";

/// The module with the options of a type of panel, and the type of its fields' settings.
fn types_of(panel: &str) -> (String, &'static str) {
    let (name, custom) = match panel {
        "timeseries" => ("TimeSeries", "GraphFieldConfig"),
        "stat" => ("Stat", "never"),
        "bargauge" => ("BarGauge", "never"),
        "table" => ("Table", "TableFieldOptions"),
        other => (other, "never"),
    };
    (
        format!(
            "@grafana/schema/dist/esm/raw/composable/{panel}/panelcfg/x/{name}PanelCfg_types.gen"
        ),
        custom,
    )
}

/// A program of TypeScript that assigns the parts of a dashboard to their types.
fn program_of(dashboard: &Value) -> String {
    let mut text = HEAD.to_owned();
    let mut line = |of: &str, value: &Value| {
        text.push_str(&format!("export const {of} = {value:#};\n"));
    };
    // The types leave these open, or have another form; they are checked below.
    let mut rest = dashboard.clone();
    for marks in rest["annotations"]["list"].as_array_mut().unwrap() {
        line("marks: SqlQuery", &marks["target"].take());
        marks.as_object_mut().unwrap().remove("target");
    }
    line("dashboard: Json<Dashboard>", &rest);
    for (place, panel) in dashboard["panels"].as_array().unwrap().iter().enumerate() {
        let (module, custom) = types_of(panel["type"].as_str().unwrap());
        let options = format!("options{place}: Json<import('{module}').Options>");
        line(&options, &panel["options"]);
        if let Some(value) = panel["fieldConfig"]["defaults"].get("custom") {
            line(&format!("custom{place}: Json<{custom}>"), value);
        }
        line(&format!("targets{place}: SqlQuery[]"), &panel["targets"]);
    }
    text
}

/// The names of files with errors, and the compiler's messages.
fn compiled(dir: &Path) -> (BTreeSet<String>, String) {
    let packages = repository().join("target/npm/node_modules");
    assert!(packages.is_dir(), "{} is missing; `make test` installs it", packages.display());
    std::os::unix::fs::symlink(&packages, dir.join("node_modules")).unwrap();
    let options = json!({
        "compilerOptions": {
            "strict": true, "noEmit": true, "skipLibCheck": true, "target": "es2022", "module": "nodenext",
            "moduleResolution": "nodenext", "types": []
        },
        "include": ["*.ts"]
    });
    std::fs::write(dir.join("tsconfig.json"), options.to_string()).unwrap();
    std::fs::write(dir.join("package.json"), "{\"type\": \"module\"}").unwrap();
    let mut node = Command::new("node");
    node.arg(packages.join("typescript/bin/tsc")).current_dir(dir);
    let (code, out, errors) = output(&mut node);
    assert!(code == 0 || !out.is_empty(), "{errors}");
    let file = |line: &str| Some(line.split_once(".ts(")?.0.to_owned());
    (out.lines().filter_map(file).collect(), out)
}

/// Dashboards with one error each.
fn wrong(dashboard: &Value) -> Vec<(&'static str, Value)> {
    let changed = |change: &dyn Fn(&mut Value)| {
        let mut dashboard = dashboard.clone();
        change(&mut dashboard);
        dashboard
    };
    let plot = dashboard["panels"].as_array().unwrap().iter();
    let plot = plot.clone().position(|panel| panel["type"] == "timeseries").unwrap();
    let panel = |change: &dyn Fn(&mut Value)| changed(&|it| change(&mut it["panels"][plot]));
    vec![
        ("a_field_of_old_panels", panel(&|it| it["yaxes"] = json!([]))),
        ("a_text_as_width", panel(&|it| it["gridPos"]["w"] = json!("wide"))),
        (
            "a_mode_that_does_not_exist",
            panel(&|it| it["options"]["tooltip"]["mode"] = json!("all")),
        ),
        (
            "a_distance_with_unit",
            panel(&|it| it["fieldConfig"]["defaults"]["custom"]["spanNulls"] = json!("5s")),
        ),
        ("an_old_panel", panel(&|it| it["type"] = json!("graph"))),
        ("a_query_without_name", panel(&|it| it["targets"][0]["refId"] = json!(null))),
        ("an_unknown_variable", changed(&|it| it["templating"]["list"][0]["type"] = json!("list"))),
        ("an_unknown_refresh", changed(&|it| it["templating"]["list"][0]["refresh"] = json!(9))),
        ("a_number_as_title", changed(&|it| it["title"] = json!(7))),
    ]
}

#[test]
fn dashboards_have_the_types_that_grafana_publishes() {
    let dir = tempfile::tempdir().unwrap();
    written(dir.path(), &[]);
    let all = dashboards(&dir.path().join("jobmeter"));
    let programs = dir.path().join("programs");
    std::fs::create_dir(&programs).unwrap();
    let write = |name: &str, dashboard: &Value| {
        std::fs::write(programs.join(format!("{name}.ts")), program_of(dashboard)).unwrap();
    };
    for dashboard in &all {
        write(dashboard["uid"].as_str().unwrap(), dashboard);
    }
    let wrong = wrong(&all[0]);
    wrong.iter().for_each(|(name, dashboard)| write(name, dashboard));
    let (found, messages) = compiled(&programs);
    let names: BTreeSet<String> = wrong.iter().map(|(name, _)| (*name).to_owned()).collect();
    assert_eq!(found, names, "{messages}");
}
