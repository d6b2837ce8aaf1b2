//! The OpenAPI document (3.1) of the server, built from [`Operation`]s and the types of their bodies.

use crate::Problem;
use crate::operation::{
    About, Access, Body, Method, Operation, PATH_JOB, PATH_PARTS, ROWS, ResponseBody, any_rows,
};
use crate::param::{Param, extend};
use schemars::SchemaGenerator;
use schemars::generate::SchemaSettings;
use serde_json::{Map, Value, json};
use std::collections::BTreeSet;

const ABOUT: &str = "Resource use of the jobs, nodes and devices of a cluster.

Times in responses are numbers: seconds since 1970 with a fraction. Unknown values are null. Clients must ignore unknown keys.

A program on the server's own machine that connects by loopback, without a proxy, needs no token: \
the kernel identifies its user. The server rejects a URL beyond 60 KiB with 414 and headers \
beyond 64 KiB with 431, without a body.";

/// Every status of an answer that is an error, and when it comes.
const STATUSES: [(u16, &str); 17] = [
    (400, "Malformed: the server cannot parse the body, a header or a parameter."),
    (401, "Not authenticated: no token, or an unknown one."),
    (403, "Permission denied."),
    (404, "Not found: for example an unknown job, or an unknown parameter of a function."),
    (
        409,
        "Conflict with the present state, such as a job that ended with another exit code, or a \
         node that is still sending.",
    ),
    (406, "The format is not available: rows are JSON or CSV."),
    (408, "The body arrived too slowly, or the query took too long."),
    (413, "The body or the response exceeds its limit, or the query took too long."),
    (415, "The content type of the body is not supported."),
    (416, "The rows begin after the last one, or the range cannot be parsed."),
    (421, "The host of the request is not a name of this server."),
    (422, "The Idempotency-Key was used for a request with another body."),
    (429, "Too many requests at the same time, or too many rows per second."),
    (500, "Internal error; the server's log has the cause."),
    (503, "Not now."),
    (507, "No room."),
    (405, "Another method."),
];

/// The largest integer of each format: the generator states none, and JSON has integers of any length.
const INTEGERS: [(&str, u64); 4] = [
    ("uint32", u32::MAX as u64),
    ("uint64", u64::MAX),
    ("int32", i32::MAX as u64),
    ("int64", i64::MAX as u64),
];

/// States in a schema how large its integers may be.
fn bound_integers(schema: &mut Value) {
    match schema {
        Value::Object(object) => {
            let format = object.get("format").and_then(Value::as_str);
            let most = format.and_then(|format| INTEGERS.iter().find(|(name, _)| *name == format));
            if let Some((_, most)) = most {
                object.entry("maximum").or_insert_with(|| json!(most));
            }
            object.values_mut().for_each(bound_integers);
        }
        Value::Array(items) => items.iter_mut().for_each(bound_integers),
        _ => {}
    }
}

/// The document, as a JSON object.
pub fn openapi() -> Value {
    let settings = || {
        let mut settings = SchemaSettings::draft2020_12();
        settings.definitions_path = "/components/schemas".into();
        settings.meta_schema = None;
        settings
    };
    let mut reported = settings().for_serialize().into_generator();
    let mut taken = settings().for_deserialize().into_generator();
    let mut paths: Map<String, Value> = Map::new();
    for operation in Operation::ALL {
        let path = paths.entry(operation.path()).or_insert_with(|| json!({}));
        let method = match operation.method() {
            Method::Get => "get",
            Method::Post => "post",
            Method::Delete => "delete",
        };
        extend(path, json!({method: described(*operation, &mut reported, &mut taken)}));
    }
    reported.subschema_for::<Problem>();
    let mut schemas = reported.take_definitions(true);
    schemas.extend(taken.take_definitions(true));
    schemas.values_mut().for_each(bound_integers);
    json!({
        "openapi": "3.1.0",
        "info": {
            "title": "jobmeter",
            "version": env!("CARGO_PKG_VERSION"),
            "description": ABOUT,
            "license": {"name": env!("CARGO_PKG_LICENSE"), "identifier": env!("CARGO_PKG_LICENSE")},
        },
        "paths": paths,
        "components": {
            "schemas": schemas,
            "responses": rejections(),
            "securitySchemes": {
                "bearer": {"type": "http", "scheme": "bearer", "description": "A created token, or one of the server's token file."},
                "basic": {"type": "http", "scheme": "basic", "description": "Any name, and a token as the password."},
            },
        },
    })
}

fn described(
    operation: Operation,
    reported: &mut SchemaGenerator,
    taken: &mut SchemaGenerator,
) -> Value {
    let about = operation.about();
    let mut object = json!({
        "operationId": snake(&format!("{operation:?}")),
        "summary": about.summary.trim(),
        "responses": answers(operation, &about, reported),
        "security": security(about.access),
    });
    let mut parameters: Vec<Value> = Vec::new();
    let named = |part: &&Param| operation.path().contains(&format!("{{{}}}", part.name));
    parameters.extend(PATH_PARTS.iter().filter(named).map(Param::in_path));
    if !matches!(about.body, Body::Params) {
        parameters.extend(about.params.iter().map(|param| param.in_query()));
    }
    if about.rows {
        parameters.extend(ROWS.iter().map(Param::in_query));
    }
    if !parameters.is_empty() {
        extend(&mut object, json!({"parameters": parameters}));
    }
    if let Some(body) = body(&about, taken) {
        extend(&mut object, json!({"requestBody": body}));
    }
    object
}

fn security(access: Access) -> Value {
    match access {
        Access::Anyone => json!([]),
        Access::Senders | Access::Readers | Access::JobReporters | Access::Pushers => {
            json!([{"bearer": []}, {"basic": []}])
        }
    }
}

fn body(about: &About, taken: &mut SchemaGenerator) -> Option<Value> {
    let (required, content) = match about.body {
        Body::None => return None,
        Body::Json(schema) => (true, json!({"application/json": {"schema": schema(taken)}})),
        Body::Frames => {
            let schema = json!({"type": "string", "format": "binary"});
            (true, json!({"application/x-jobmeter-batches": {"schema": schema}}))
        }
        Body::Rows(schema) => {
            let row = schema(taken);
            let rows = json!({"oneOf": [row, {"type": "array", "items": row}]});
            let csv = json!({"schema": {"type": "string"}});
            (true, json!({"application/json": {"schema": rows}, "text/csv": csv}))
        }
        Body::Params => {
            let all = about.params.iter().map(|param| (param.name.to_owned(), param.in_body()));
            let properties: Map<String, Value> = all.collect();
            let schema = json!({
                "type": "object", "properties": properties, "additionalProperties": false,
            });
            let content = json!({
                "application/json": {"schema": schema},
                "application/x-www-form-urlencoded": form(about),
            });
            (false, content)
        }
    };
    Some(json!({"required": required, "content": content}))
}

/// The parameters as a form.
fn form(about: &About) -> Value {
    let all = || about.params.iter();
    let properties: Map<String, Value> =
        all().map(|param| (param.name.to_owned(), param.in_form())).collect();
    let encoding: Map<String, Value> =
        all().filter_map(|param| Some((param.name.to_owned(), param.encoding()?))).collect();
    let schema = json!({"type": "object", "properties": properties, "additionalProperties": false});
    json!({"schema": schema, "encoding": encoding})
}

fn answers(operation: Operation, about: &About, reported: &mut SchemaGenerator) -> Value {
    let (what, content) = match about.answer {
        ResponseBody::Json(schema) => {
            ("The answer.", json!({"application/json": {"schema": schema(reported)}}))
        }
        ResponseBody::Rows(schema) if about.rows => (
            "Rows, in the form that Accept requests. With `select` they have its columns.",
            json!({
                "application/json": {"schema": {"anyOf": [schema(reported), any_rows(reported)]}},
                "application/vnd.pgrst.object+json": {"schema": {"type": "object"}},
                "text/csv": {"schema": {"type": "string"}},
            }),
        ),
        ResponseBody::Rows(schema) => (
            "Rows, in the form that Accept asks for.",
            json!({
                "application/json": {"schema": schema(reported)},
                "text/csv": {"schema": {"type": "string"}},
            }),
        ),
        ResponseBody::Document => {
            ("The document.", json!({"application/json": {"schema": {"type": "object"}}}))
        }
        ResponseBody::Text => (
            "Prometheus's text format 0.0.4.",
            json!({"text/plain": {"schema": {"type": "string"}}}),
        ),
        ResponseBody::Acks => (
            "An ack for each frame: an `Answer` of proto/batch.proto.",
            json!({"application/x-jobmeter-answer": {"schema": {"type": "string", "format": "binary"}}}),
        ),
    };
    let mut reported = json!({"description": what, "content": content});
    if let Some(links) = links(operation) {
        extend(&mut reported, json!({"links": links}));
    }
    let mut all = json!({"200": &reported});
    if about.rows {
        let part = "A part of the rows; the header `Content-Range` states which.";
        let mut reported = reported;
        extend(&mut reported, json!({"description": part}));
        extend(&mut all, json!({"206": reported}));
    }
    for status in statuses(operation, about) {
        let name = status.to_string();
        let reference = json!({"$ref": format!("#/components/responses/{name}")});
        extend(&mut all, json!({name: reference}));
    }
    all
}

/// What can be asked of the job that an answer names.
fn links(operation: Operation) -> Option<Value> {
    let next = match operation {
        Operation::Register => [Operation::Report, Operation::End],
        _ => return None,
    };
    let id = "$response.body#/id";
    let one = |next: &Operation| {
        let name = snake(&format!("{next:?}"));
        (name.clone(), json!({"operationId": name, "parameters": {PATH_JOB.name: id}}))
    };
    Some(next.iter().map(one).collect::<Map<_, _>>().into())
}

/// Statuses of errors that an operation may answer.
fn statuses(operation: Operation, about: &About) -> BTreeSet<u16> {
    // Every request may fail because of its headers, its caller or its host.
    let mut all = BTreeSet::from([400, 401, 421, 500]);
    if about.access != Access::Anyone {
        all.extend([403, 408, 413, 429]);
    }
    if !matches!(about.body, Body::None) {
        all.extend([403, 408, 413, 415, 429]);
    }
    if matches!(about.answer, ResponseBody::Rows(_)) {
        all.insert(406);
    }
    if operation.method() != Method::Get {
        all.insert(403);
    }
    if about.rows {
        all.insert(416);
    }
    all.extend(about.more);
    all
}

/// Answers that are errors, by their status.
fn rejections() -> Value {
    let one = |(status, when): &(u16, &str)| {
        let mut answer = json!({
            "description": when,
            "content": {"application/json": {"schema": {"$ref": "#/components/schemas/Problem"}}},
        });
        let header = match status {
            401 => Some(("WWW-Authenticate", "The supported ways to authenticate.")),
            429 | 503 | 507 => Some(("Retry-After", "Seconds to wait before the next attempt.")),
            _ => None,
        };
        if let Some((name, help)) = header {
            let header =
                json!({"description": help, "required": true, "schema": {"type": "string"}});
            extend(&mut answer, json!({"headers": {name: header}}));
        }
        (status.to_string(), answer)
    };
    STATUSES.iter().map(one).collect::<Map<_, _>>().into()
}

/// `GetMetrics` as `get_metrics`.
fn snake(name: &str) -> String {
    let mut snake = String::new();
    for letter in name.chars() {
        if letter.is_ascii_uppercase() && !snake.is_empty() {
            snake.push('_');
        }
        snake.push(letter.to_ascii_lowercase());
    }
    snake
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_operation_is_described_and_every_reference_leads_somewhere() {
        let document = openapi();
        let text = document.to_string();
        for operation in Operation::ALL {
            let method = format!("{:?}", operation.method()).to_lowercase();
            let reported = &document["paths"][operation.path()][&method];
            assert!(
                reported["summary"].as_str().is_some_and(|it| it.ends_with('.')),
                "{operation:?}"
            );
            assert!(reported["responses"]["200"]["content"].is_object(), "{operation:?}");
            for param in operation.params() {
                assert!(
                    reported.to_string().contains(&format!("\"{}\"", param.name)),
                    "{operation:?}"
                );
            }
        }
        for rest in text.split("\"$ref\":\"#").skip(1) {
            let pointer = rest.split('"').next().unwrap();
            assert!(document.pointer(pointer).is_some(), "{pointer}");
        }
        let schemas = document["components"]["schemas"].as_object().unwrap();
        for name in schemas.keys() {
            assert!(text.contains(&format!("#/components/schemas/{name}\"")), "{name} is used");
        }
    }

    #[test]
    fn fields_that_are_always_present_are_required_and_others_are_not() {
        let document = openapi();
        let required = |name: &str| document["components"]["schemas"][name]["required"].to_string();
        assert!(required("Job").contains("exit_code"));
        assert_eq!(required("Register"), r#"["device"]"#);
    }
}
