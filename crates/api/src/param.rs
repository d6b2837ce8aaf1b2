//! Parameters of requests: their names, meanings and accepted texts.

use serde_json::{Value, json};

/// A parameter of a question.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Param {
    /// Its name.
    pub name: &'static str,
    /// What it means.
    pub help: &'static str,
    /// What it takes.
    pub form: Form,
}

/// What a parameter takes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Form {
    /// Any text.
    Text,
    /// Texts with commas between them.
    Texts,
    /// Names of devices as lists show them, with commas between them; a name with a comma is in double quotes.
    Devices,
    /// Names of metrics with commas between them.
    Metrics,
    /// The name of a device.
    Device,
    /// The name of a device as lists show it: also one that another program wrote into the database.
    ListedDevice,
    /// The name of a table of SQL.
    Table,
    /// A number of rows.
    Rows,
    /// Conditions of rows: a parameter `COLUMN=OPERATOR.VALUE` for each.
    Conditions,
    /// The name of a cluster.
    Cluster,
    /// The same; the empty text stands for none.
    ClusterOrEmpty,
    /// A job as a person names it: `[CLUSTER:]ID`.
    Job,
    /// The same, or `none`.
    JobOrNone,
    /// The same, or `*`: no one job.
    JobOrAll,
    /// Where a job is in a list: `CLUSTER:ID@START`.
    Place,
    /// An account: `CLUSTER:NAME`.
    Account,
    /// What [`crate::parse_time`] reads: seconds since 1970, a date, a time of day, or a duration before now.
    Time,
    /// The same; the empty text is as if it were left out.
    TimeOrEmpty,
    /// Seconds, or a time such as `30s`.
    Step,
    /// A truth value, as PostgreSQL reads them.
    Truth,
    /// The same, or `auto`.
    TruthOrAuto,
    /// A whole number.
    Count,
    /// How many entries of a list, from 1 to this many.
    Entries(u32),
    /// The number that something was given, from 1 on.
    Number,
    /// One of [`JOB_STATES`].
    JobState,
    /// A JSON object of labels, each a text, or null for none.
    Labels,
    /// A JSON object with `devices` and `job_id`.
    Narrowing,
}

/// What a job may be doing.
pub const JOB_STATES: [&str; 4] = ["waiting", "running", "ended", "failed"];

/// The tables of SQL.
pub const TABLES: [&str; 16] = [
    "metrics",
    "metrics_by_device",
    "metrics_by_job",
    "metrics_summary",
    "metrics_by_device_summary",
    "metrics_by_job_summary",
    "nodetime_per_job",
    "nodetime_by_job",
    "jobs",
    "allocations",
    "gaps",
    "counter_starts",
    "marks",
    "devices",
    "promoted_metrics",
    "catalogue",
];

/// Most that [`Form::Count`] takes.
pub const COUNT_MAX: u32 = 1_000_000;

/// Most that [`Form::Number`] takes: what JavaScript holds exactly.
pub const NUMBER_MAX: i64 = (1 << 53) - 1;

/// A parameter, its name first.
pub(crate) const fn param(name: &'static str, form: Form, help: &'static str) -> Param {
    Param { name, help, form }
}

/// What `model::is_unprintable` has up to U+FFFF, within brackets of a pattern: beyond, patterns of JSON Schema have no
/// common syntax.
macro_rules! unprintable {
    () => {
        concat!(
            "\\x00-\\x1f\\x7f-\\x9f\\u00ad\\u034f\\u061c\\u115f\\u1160\\u17b4\\u17b5\\u180b-\\u180f\\u200b-\\u200f",
            "\\u2028-\\u202e\\u2060-\\u206f\\u2800\\u3164\\ufe00-\\ufe0f\\ufeff\\uffa0\\ufff0-\\ufffb"
        )
    };
}
pub(crate) use unprintable;

/// Every character of a device's name, which does not begin like an option or a hidden file; its length in bytes is
/// bounded, too.
pub(crate) const DEVICE: &str = concat!("^[^.,/", unprintable!(), "-][^,/", unprintable!(), "]*$");
/// Every character of a name in rows of other programs; its length in bytes is bounded, too.
const LISTED: &str = "^[^\\x00]+$";
pub(crate) const CLUSTER: &str = "^[A-Za-z0-9_][A-Za-z0-9_.-]*$";
/// Every character of a metric's name.
pub(crate) const METRIC: &str = "^[A-Za-z0-9_.:/-]+$";
pub(crate) const METRIC_LENGTH_MAX: u32 = 200;
const CLUSTER_OR_EMPTY: &str = "^([A-Za-z0-9_][A-Za-z0-9_.-]*)?$";
pub(crate) const JOB: &str = "^([A-Za-z0-9_][A-Za-z0-9_.-]{0,62}:)?[0-9][A-Za-z0-9_+.-]{0,63}$";
const PLACE: &str =
    "^[A-Za-z0-9_][A-Za-z0-9_.-]{0,62}:[1-9][0-9]{0,17}@[0-9]{1,11}(\\.[0-9]{1,6})?$";
const ACCOUNT: &str = concat!("^[A-Za-z0-9_][A-Za-z0-9_.-]{0,62}:[^", unprintable!(), "]{1,100}$");
const STEP: &str = "^([0-9]{1,5}(ms|s|m)|[0-9]{1,3}h|[0-9]{1,2}d)$";
/// A duration before now, the largest unit first.
const BEFORE_NOW: &str = "^-?[0-9]{1,3}(s|m([0-9]{1,2}s)?|h([0-9]{1,2}[ms])?|d([0-9]{1,2}[hms])?)$";
/// A time of today.
const TIME_OF_DAY: &str = "^([01][0-9]|2[0-3]):[0-5][0-9](:[0-5][0-9])?$";
pub(crate) const NAME_LENGTH_MAX: u32 = 253;
/// A year of 366 days.
const STEP_SECONDS_MAX: u32 = 366 * 86_400;
/// The beginning of year 1, and of year 10000.
const SECONDS: (i64, i64) = (-62_135_596_800, 253_402_300_800);
const TRUTHS: [&str; 12] =
    ["true", "false", "t", "f", "yes", "no", "y", "n", "on", "off", "1", "0"];

impl Param {
    /// The parameter as OpenAPI describes it in a query string.
    pub(crate) fn in_query(&self) -> Value {
        let mut reported = json!({"name": self.name, "in": "query", "description": self.help});
        let more = match self.form {
            Form::Labels | Form::Narrowing => {
                json!({"content": {"application/json": {"schema": self.form.schema()}}})
            }
            Form::Texts | Form::Devices | Form::Metrics => {
                json!({"style": "form", "explode": false, "schema": self.form.schema()})
            }
            Form::Conditions => {
                json!({"style": "form", "explode": true, "schema": self.form.schema()})
            }
            _ => json!({"schema": self.form.schema()}),
        };
        extend(&mut reported, more);
        reported
    }

    /// The same as a part of a path.
    pub(crate) fn in_path(&self) -> Value {
        let schema = self.form.schema();
        let help = self.help;
        json!({"name": self.name, "in": "path", "required": true, "description": help, "schema": schema})
    }

    /// The same as a field of a form.
    pub(crate) fn in_form(&self) -> Value {
        self.described(self.form.written(&[]))
    }

    /// How the field is written where its value is no single text.
    pub(crate) fn encoding(&self) -> Option<Value> {
        let json = matches!(self.form, Form::Labels | Form::Narrowing);
        json.then(|| json!({"contentType": "application/json"}))
    }

    /// The same as a value of a JSON object; null is as if it were left out.
    pub(crate) fn in_body(&self) -> Value {
        self.described(self.form.written(&["null"]))
    }

    fn described(&self, mut schema: Value) -> Value {
        extend(&mut schema, json!({"description": self.help}));
        schema
    }
}

/// Adds the keys of an object to another.
pub(crate) fn extend(object: &mut Value, more: Value) {
    if let (Value::Object(object), Value::Object(more)) = (object, more) {
        object.extend(more);
    }
}

/// Adds types to those of a schema.
fn or(mut schema: Value, types: &[&str]) -> Value {
    let own = schema.get("type").and_then(Value::as_str).map(str::to_owned);
    let all: Vec<&str> = own.as_deref().into_iter().chain(types.iter().copied()).collect();
    extend(&mut schema, json!({"type": all}));
    schema
}

impl Form {
    /// What a text of a query string is.
    fn schema(self) -> Value {
        let named =
            |pattern| json!({"type": "string", "pattern": pattern, "maxLength": NAME_LENGTH_MAX});
        match self {
            Self::Text => json!({"type": "string"}),
            Self::Texts => json!({"type": "array", "items": {"type": "string"}}),
            Self::Devices => json!({"type": "array", "items": Self::ListedDevice.schema()}),
            Self::ListedDevice => {
                json!({"type": "string", "pattern": LISTED})
            }
            Self::Metrics => {
                let name =
                    json!({"type": "string", "pattern": METRIC, "maxLength": METRIC_LENGTH_MAX});
                json!({"type": "array", "items": name})
            }
            Self::Device => named(DEVICE),
            Self::Table => json!({"type": "string", "enum": TABLES}),
            Self::Rows => json!({"type": "integer", "minimum": 0, "maximum": i64::MAX}),
            Self::Conditions => {
                json!({"type": "object", "additionalProperties": {"type": "string"}})
            }
            Self::Cluster => named(CLUSTER),
            Self::ClusterOrEmpty => named(CLUSTER_OR_EMPTY),
            Self::Job => json!({"type": "string", "pattern": JOB}),
            Self::Place => json!({"type": "string", "pattern": PLACE}),
            Self::Account => json!({"type": "string", "pattern": ACCOUNT}),
            Self::JobOrNone => json!({"anyOf": [Self::Job.schema(), {"const": "none"}]}),
            Self::JobOrAll => json!({"anyOf": [Self::Job.schema(), {"const": "*"}]}),
            Self::Time | Self::TimeOrEmpty | Self::Step => json!({"anyOf": self.choices()}),
            Self::Truth | Self::TruthOrAuto => json!({"enum": self.choices()}),
            Self::Count => json!({"type": "integer", "minimum": 0, "maximum": COUNT_MAX}),
            Self::Entries(most) => json!({"type": "integer", "minimum": 1, "maximum": most}),
            Self::Number => json!({"type": "integer", "minimum": 1, "maximum": NUMBER_MAX}),
            Self::JobState => json!({"type": "string", "enum": JOB_STATES}),
            Self::Labels => json!({
                "type": "object",
                "propertyNames": {"minLength": 1},
                "additionalProperties": {"type": ["string", "null"]},
            }),
            Self::Narrowing => json!({"type": "object", "properties": {
                "devices": {"type": ["array", "null"], "items": named(DEVICE)},
                "job_id": {"description": "A number, or its digits; anything else is ignored."},
            }}),
        }
    }

    /// One of these it is.
    fn choices(self) -> Vec<Value> {
        match self {
            Self::Time => vec![
                json!({"type": "number", "minimum": SECONDS.0, "exclusiveMaximum": SECONDS.1}),
                json!({"type": "string", "format": "date-time"}),
                json!({"type": "string", "pattern": BEFORE_NOW}),
                json!({"type": "string", "pattern": TIME_OF_DAY}),
                json!({"enum": ["now", "today", "yesterday"]}),
            ],
            Self::TimeOrEmpty => {
                let mut choices = Self::Time.choices();
                choices.push(json!({"const": ""}));
                choices
            }
            Self::Step => vec![
                json!({"type": "number", "minimum": 0, "maximum": STEP_SECONDS_MAX}),
                json!({"type": "string", "pattern": STEP}),
            ],
            Self::Truth => {
                let values = [json!(true), json!(false), json!(1), json!(0)];
                values.into_iter().chain(TRUTHS.map(Value::from)).collect()
            }
            Self::TruthOrAuto => {
                let mut values = Self::Truth.choices();
                values.push(json!("auto"));
                values
            }
            _ => Vec::new(),
        }
    }

    /// What a value in a body is: numbers and truth values stand for the text that they are written as.
    fn written(self, more: &[&str]) -> Value {
        let bare = |types: &[&'static str]| [types, more].concat();
        match self {
            Self::Text | Self::Texts => or(Self::Text.schema(), &bare(&["number", "boolean"])),
            Self::Device | Self::ListedDevice | Self::Cluster | Self::ClusterOrEmpty => {
                or(self.schema(), &bare(&["integer", "boolean"]))
            }
            Self::Job => or(self.schema(), &bare(&["integer"])),
            Self::Labels | Self::Narrowing => or(self.schema(), more),
            Self::Truth | Self::TruthOrAuto => {
                let mut values = self.choices();
                values.extend(more.iter().map(|_| Value::Null));
                json!({"enum": values})
            }
            Self::Time | Self::TimeOrEmpty => {
                let mut choices = self.choices();
                choices.extend(more.iter().map(|kind| json!({"type": kind})));
                json!({"anyOf": choices})
            }
            // No operation accepts these in a body.
            Self::Devices
            | Self::Metrics
            | Self::JobOrNone
            | Self::JobOrAll
            | Self::Place
            | Self::Account
            | Self::Step
            | Self::Count
            | Self::Table
            | Self::Rows
            | Self::Conditions
            | Self::Entries(_)
            | Self::Number
            | Self::JobState => self.schema(),
        }
    }
}
