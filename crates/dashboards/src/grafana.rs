//! The JSON of a dashboard, as Grafana 10 and later read it.

use crate::declaration::{Choice, Dashboard, Panel, Quantity, Query, Selection, Variable, View};
use crate::postgresql::{self, SUMMARY, Statement, UNIT};
use crate::units;
use serde_json::{Map, Value, json};
use std::time::Duration;

/// The version of the schema of Grafana 10.0; later ones convert it when they load it.
const SCHEMA_VERSION: u32 = 38;
/// Columns of a row of panels.
const WIDTH: u32 = 24;
/// The smallest refresh in the menu.
const REFRESH: &str = "30s";
/// The shortest distance between two points of a plot that counts as a gap, in periods.
const GAP_PERIODS: u32 = 3;
/// The same for windows of five minutes.
const SUMMARY_GAP: Duration = Duration::from_mins(15);

/// The datasource of a dashboard, and the period of most samples.
pub(crate) struct Context<'a> {
    /// ID of the datasource.
    pub(crate) datasource: &'a str,
    /// Grafana's name of the type of datasource.
    pub(crate) kind: &'a str,
    pub(crate) period: Duration,
}

impl Context<'_> {
    fn datasource(&self) -> Value {
        json!({"type": self.kind, "uid": self.datasource})
    }
}

/// The JSON of a dashboard.
pub(crate) fn dashboard(dashboard: &Dashboard, context: &Context<'_>) -> Value {
    let variables: Vec<Value> =
        dashboard.variables.iter().map(|variable| of_variable(variable, context)).collect();
    let marks =
        Statement { name: "gaps", text: postgresql::gap_marks(dashboard.gaps), is_series: false };
    json!({
        "uid": dashboard.uid,
        "title": dashboard.title,
        "description": dashboard.description,
        "tags": ["jobmeter"],
        "schemaVersion": SCHEMA_VERSION,
        "editable": true,
        // The mouse marks the same instant in each plot.
        "graphTooltip": 1,
        "timezone": "browser",
        "time": {"from": "now-30m", "to": "now"},
        "timepicker": {"refresh_intervals": ["5s", REFRESH, "1m", "5m", "15m", "1h"]},
        "refresh": REFRESH,
        "links": [{
            "type": "dashboards", "title": "jobmeter", "tags": ["jobmeter"], "asDropdown": true, "icon": "external link",
            "includeVars": false, "keepTime": true, "targetBlank": false, "tooltip": "",
        }],
        "annotations": {"list": [{
            "name": "Gaps", "enable": true, "iconColor": "orange", "datasource": context.datasource(),
            "target": target(&marks, context),
        }]},
        "templating": {"list": variables},
        "panels": panels(dashboard.panels, context),
    })
}

fn of_variable(variable: &Variable, context: &Context<'_>) -> Value {
    let is_all = variable.selection == Selection::All;
    let mut value = json!({
        "type": "query",
        "name": variable.choice.name(),
        "label": variable.label,
        "datasource": context.datasource(),
        "query": postgresql::values(variable.values),
        // The values of the time range that is shown.
        "refresh": 2,
        "multi": variable.selection != Selection::One,
        "includeAll": is_all,
        "sort": 0,
        "regex": "",
        "options": [],
    });
    if is_all && let Some(fields) = value.as_object_mut() {
        fields.insert("current".to_owned(), json!({"text": ["All"], "value": ["$__all"]}));
    }
    value
}

/// The panels from left to right, and in rows from above.
fn panels(panels: &[Panel], context: &Context<'_>) -> Vec<Value> {
    let (mut x, mut y, mut height) = (0, 0, 0);
    let mut id = 0;
    let mut list = Vec::new();
    for panel in panels {
        if x + panel.width > WIDTH || panel.repeat.is_some() {
            (x, y, height) = (0, y + height, 0);
        }
        id += 1;
        let place = json!({"x": x, "y": y, "w": panel.width, "h": panel.height});
        list.push(of_panel(panel, id, &place, context));
        height = height.max(panel.height);
        // Copies of a repeated panel fill its row.
        x = if panel.repeat.is_some() { WIDTH } else { x + panel.width };
    }
    list
}

fn of_panel(panel: &Panel, id: u32, place: &Value, context: &Context<'_>) -> Value {
    let statements = postgresql::statements(panel.query);
    let targets: Vec<Value> = statements.iter().map(|one| target(one, context)).collect();
    let mut value = json!({
        "id": id,
        "type": kind(panel.view),
        "title": panel.title,
        "description": panel.description,
        "datasource": context.datasource(),
        "gridPos": place,
        "targets": targets,
        "options": options(panel.view),
        "fieldConfig": fields(panel, context),
        "transformations": transformations(panel.query),
    });
    if let Some(choice) = panel.repeat
        && let Some(map) = value.as_object_mut()
    {
        repeat(map, choice, panel.width);
    }
    value
}

fn repeat(panel: &mut Map<String, Value>, choice: Choice, width: u32) {
    panel.insert("repeat".to_owned(), json!(choice.name()));
    panel.insert("repeatDirection".to_owned(), json!("h"));
    panel.insert("maxPerRow".to_owned(), json!(WIDTH / width));
}

fn target(statement: &Statement, context: &Context<'_>) -> Value {
    json!({
        "refId": statement.name,
        "datasource": context.datasource(),
        "format": if statement.is_series { "time_series" } else { "table" },
        "rawQuery": true,
        "editorMode": "code",
        "rawSql": statement.text,
    })
}

/// Grafana's name of a view.
const fn kind(view: View) -> &'static str {
    match view {
        View::Lines | View::StackedLines => "timeseries",
        View::Numbers => "stat",
        View::Bars(_) => "bargauge",
        View::Table => "table",
    }
}

fn options(view: View) -> Value {
    match view {
        View::Lines | View::StackedLines => json!({
            "legend": {"displayMode": "list", "placement": "bottom", "showLegend": true, "calcs": []},
            "tooltip": {"mode": "multi", "sort": "desc"},
        }),
        View::Numbers => json!({
            "colorMode": "none", "graphMode": "none", "justifyMode": "auto", "textMode": "value_and_name",
            "orientation": "vertical", "wideLayout": true, "showPercentChange": false,
            "percentChangeColorMode": "standard",
            "reduceOptions": {"calcs": ["lastNotNull"], "fields": "/.*/", "values": false},
        }),
        View::Bars(column) => json!({
            "displayMode": "basic", "orientation": "horizontal", "valueMode": "color", "showUnfilled": true,
            "minVizWidth": 8, "minVizHeight": 16, "maxVizHeight": 300, "namePlacement": "auto", "sizing": "auto",
            "legend": {"displayMode": "list", "placement": "bottom", "showLegend": false, "calcs": []},
            "reduceOptions": {"calcs": [], "fields": column, "values": true, "limit": 100},
        }),
        View::Table => json!({"frameIndex": 0, "showHeader": true, "cellHeight": "sm"}),
    }
}

/// The units of a panel's columns, and the distances that are gaps.
fn fields(panel: &Panel, context: &Context<'_>) -> Value {
    let mut defaults = json!({"color": {"mode": "palette-classic"}});
    let mut overrides = Vec::new();
    let columns = panel.query.columns();
    let lines = matches!(panel.view, View::Lines | View::StackedLines);
    if let Some(defaults) = defaults.as_object_mut() {
        let custom = match panel.view {
            View::Lines | View::StackedLines => Some(lines_of(panel.view, context.period)),
            View::Table => {
                Some(json!({"align": "auto", "cellOptions": {"type": "auto"}, "inspect": false}))
            }
            View::Numbers | View::Bars(_) => None,
        };
        if let Some(custom) = custom {
            defaults.insert("custom".to_owned(), custom);
        }
        let values =
            columns.iter().find(|(_, quantity)| lines && matches!(quantity, Quantity::Of(_)));
        if let Some((_, quantity)) = values {
            defaults.insert("unit".to_owned(), json!(units::of_quantity(*quantity)));
        }
    }
    if lines {
        let gap = milliseconds(SUMMARY_GAP);
        overrides.push(json!({
            "matcher": {"id": "byFrameRefID", "options": SUMMARY},
            "properties": [
                {"id": "custom.spanNulls", "value": gap},
                {"id": "custom.insertNulls", "value": gap},
            ],
        }));
    } else {
        for (name, quantity) in columns {
            let Some(unit) = units::of_quantity(quantity) else { continue };
            overrides.push(json!({
                "matcher": {"id": "byName", "options": name},
                "properties": [{"id": "unit", "value": unit}],
            }));
        }
    }
    json!({"defaults": defaults, "overrides": overrides})
}

/// How lines look. A distance of several periods is a gap: the line ends before it.
fn lines_of(view: View, period: Duration) -> Value {
    let gap = milliseconds(period * GAP_PERIODS);
    let (mode, fill) = if view == View::StackedLines { ("normal", 30) } else { ("none", 5) };
    json!({
        "drawStyle": "line", "lineWidth": 1, "lineInterpolation": "linear", "fillOpacity": fill,
        "showPoints": "auto", "spanNulls": gap, "insertNulls": gap,
        "stacking": {"mode": mode, "group": "A"},
    })
}

fn milliseconds(time: Duration) -> u64 {
    u64::try_from(time.as_millis()).unwrap_or(u64::MAX)
}

fn transformations(query: Query) -> Value {
    match query {
        // The unit of the lines is that of the chosen metric.
        Query::Series(_) => json!([{
            "id": "configFromData",
            "options": {"configRefId": UNIT, "mappings": [{"fieldName": UNIT, "handlerKey": "unit"}]},
        }]),
        // Each figure is a column.
        Query::JobFigures => json!([{
            "id": "extractFields",
            "options": {"source": postgresql::JOB_FIGURES, "format": "json", "replace": true},
        }]),
        _ => json!([]),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::list::DASHBOARDS;
    use std::collections::BTreeSet;

    fn context() -> Context<'static> {
        Context { datasource: "jobmeter", kind: "postgres", period: Duration::from_secs(5) }
    }

    #[test]
    fn panels_lie_beside_each_other_and_do_not_overlap() {
        for one in DASHBOARDS {
            let json = dashboard(one, &context());
            let mut cells = BTreeSet::new();
            for panel in json["panels"].as_array().unwrap() {
                let of = |name: &str| panel["gridPos"][name].as_u64().unwrap();
                assert!(of("x") + of("w") <= 24, "{panel}");
                for x in of("x")..of("x") + of("w") {
                    for y in of("y")..of("y") + of("h") {
                        assert!(cells.insert((x, y)), "{}: {x} {y}", one.uid);
                    }
                }
            }
        }
    }

    #[test]
    fn lines_end_at_gaps_of_their_period() {
        let slow = Context { period: Duration::from_mins(1), ..context() };
        let power = DASHBOARDS[2];
        let json = dashboard(power, &slow);
        let lines = json["panels"].as_array().unwrap().iter();
        let lines: Vec<&Value> = lines.filter(|panel| panel["type"] == "timeseries").collect();
        assert_eq!(lines.len(), 2);
        for panel in lines {
            let fields = &panel["fieldConfig"];
            assert_eq!(fields["defaults"]["custom"]["insertNulls"], 180_000);
            let summary = &fields["overrides"][0];
            assert_eq!(summary["matcher"]["options"], SUMMARY);
            assert_eq!(summary["properties"][1]["value"], 900_000);
        }
    }

    #[test]
    fn a_variable_uses_those_before_it_only() {
        for one in DASHBOARDS {
            let mut known = Vec::new();
            for variable in one.variables {
                let text = postgresql::values(variable.values);
                for choice in [Choice::Device, Choice::Job, Choice::Metric, Choice::Power] {
                    let used = text.contains(&format!("${{{}", choice.name()));
                    assert!(!used || known.contains(&choice.name()), "{}: {text}", one.uid);
                }
                known.push(variable.choice.name());
            }
        }
    }
}
