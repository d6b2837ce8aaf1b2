//! An exposition as its lines. A bad line is an error of its own: the next one is read.

use super::labels::{Labels, Rest, unescape_help};
use std::borrow::Cow;

/// Which of the two formats a text has; the Content-Type states it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Format {
    /// Prometheus' text format 0.0.4: timestamps in milliseconds.
    Text,
    /// OpenMetrics 1.0: timestamps in seconds, exemplars, and `# EOF` at the end.
    OpenMetrics,
}

impl Format {
    /// The format of a Content-Type; without one the text format.
    pub fn of_content_type(content_type: &str) -> Self {
        let name = content_type.split(';').next().unwrap_or_default().trim();
        match name.eq_ignore_ascii_case("application/openmetrics-text") {
            true => Self::OpenMetrics,
            false => Self::Text,
        }
    }
}

/// Type of a metric family.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[expect(missing_docs, reason = "the names are those of the formats")]
pub enum MetricType {
    Counter,
    Gauge,
    Histogram,
    GaugeHistogram,
    Summary,
    StateSet,
    Info,
    Unknown,
}

/// A line with a meaning.
#[derive(Clone, Debug, PartialEq)]
pub enum Line<'a> {
    /// `# TYPE name type`.
    Type(Cow<'a, str>, MetricType),
    /// `# HELP name text`.
    Help(Cow<'a, str>, Cow<'a, str>),
    /// `# UNIT name unit`.
    Unit(Cow<'a, str>, &'a str),
    /// A sample.
    Sample(Sample<'a>),
    /// `# EOF`: the exposition is complete.
    End,
}

/// A sample as exposed.
#[derive(Clone, Debug, PartialEq)]
pub struct Sample<'a> {
    /// The exposed name.
    pub name: Cow<'a, str>,
    /// Labels in their order.
    pub labels: Vec<(Cow<'a, str>, Cow<'a, str>)>,
    /// The value.
    pub value: f64,
    /// Its own instant in seconds since 1970.
    pub at: Option<f64>,
}

/// A line that is neither a sample nor a comment.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("line {line}: {what}")]
pub struct LineError {
    /// Line, from 1.
    pub line: usize,
    /// The problem.
    pub what: &'static str,
}

/// The lines of an exposition. Comments and empty lines are left out.
#[derive(Clone, Debug)]
pub struct Lines<'a> {
    rest: &'a str,
    line: usize,
    format: Format,
    has_ended: bool,
}

impl<'a> Lines<'a> {
    /// The lines of a text.
    pub const fn new(text: &'a str, format: Format) -> Self {
        Self { rest: text, line: 0, format, has_ended: false }
    }

    /// Whether the exposition is complete: OpenMetrics ends with `# EOF`, the text format anywhere.
    pub fn is_complete(&self) -> bool {
        self.format == Format::Text || self.has_ended
    }
}

impl<'a> Iterator for Lines<'a> {
    type Item = Result<Line<'a>, LineError>;

    fn next(&mut self) -> Option<Self::Item> {
        while !self.rest.is_empty() && !self.has_ended {
            let (line, rest) = self.rest.split_once('\n').unwrap_or((self.rest, ""));
            self.rest = rest;
            self.line += 1;
            let line = line.strip_suffix('\r').unwrap_or(line);
            match read(line, self.format) {
                Ok(None) => {}
                Ok(Some(line)) => {
                    self.has_ended = line == Line::End && self.format == Format::OpenMetrics;
                    return Some(Ok(line));
                }
                Err(what) => return Some(Err(LineError { line: self.line, what })),
            }
        }
        None
    }
}

fn read(line: &str, format: Format) -> Result<Option<Line<'_>>, &'static str> {
    let mut rest = Rest(line);
    rest.skip_blanks();
    if rest.0.is_empty() {
        return Ok(None);
    }
    if rest.take('#') {
        return comment(rest, format);
    }
    let mut labels = Labels::new();
    let name = if rest.0.starts_with('{') { None } else { Some(Cow::Borrowed(rest.name()?)) };
    rest.skip_blanks();
    let mut quoted_name = None;
    if rest.0.starts_with('{') {
        quoted_name = rest.braces(&mut labels)?;
    }
    let name = match (name, quoted_name) {
        (Some(name), None) | (None, Some(name)) => name,
        (None, None) => return Err("the name is missing"),
        (Some(_), Some(_)) => return Err("there are two names"),
    };
    rest.skip_blanks();
    let value = number(rest.word()).ok_or("the value is not a number")?;
    let at = match rest.0.starts_with('#') && format == Format::OpenMetrics {
        true => None,
        false => timestamp(rest.word(), format)?,
    };
    match rest.0 {
        "" => {}
        exemplar if format == Format::OpenMetrics && exemplar.starts_with("# {") => {
            check_exemplar(exemplar)?;
        }
        _ => return Err("a text follows the timestamp"),
    }
    Ok(Some(Line::Sample(Sample { name, labels, value, at })))
}

/// A float as Go and Python print it. Hexadecimal floats are not numbers here.
fn number(word: &str) -> Option<f64> {
    word.parse().ok()
}

fn timestamp(word: &str, format: Format) -> Result<Option<f64>, &'static str> {
    const BAD: &str = "the timestamp is not a number";
    match format {
        _ if word.is_empty() => Ok(None),
        Format::Text => {
            let ms: i64 = word.parse().map_err(|_| BAD)?;
            #[expect(
                clippy::cast_precision_loss,
                clippy::as_conversions,
                reason = "milliseconds of this millennium are below 2^53"
            )]
            Ok(Some(ms as f64 / 1000.0))
        }
        Format::OpenMetrics => match number(word) {
            Some(seconds) if seconds.is_finite() => Ok(Some(seconds)),
            _ => Err(BAD),
        },
    }
}

/// Exemplars are not stored. A wrong one is an error, because the line may be cut.
fn check_exemplar(text: &str) -> Result<(), &'static str> {
    let mut rest = Rest(text);
    rest.take('#');
    rest.skip_blanks();
    rest.braces(&mut Labels::new())?;
    rest.skip_blanks();
    number(rest.word()).ok_or("the value of the exemplar is not a number")?;
    timestamp(rest.word(), Format::OpenMetrics)?;
    if rest.0.is_empty() { Ok(()) } else { Err("a text follows the exemplar") }
}

fn comment(mut rest: Rest<'_>, format: Format) -> Result<Option<Line<'_>>, &'static str> {
    rest.skip_blanks();
    let what = rest.word();
    match what {
        "EOF" if format == Format::OpenMetrics && rest.0.is_empty() => return Ok(Some(Line::End)),
        "TYPE" | "HELP" | "UNIT" => {}
        _ => return Ok(None),
    }
    let name = match rest.0.starts_with('"') {
        true => rest.quoted()?,
        false => Cow::Borrowed(rest.name()?),
    };
    if !(rest.0.is_empty() || rest.0.starts_with([' ', '\t'])) {
        return Err("a blank is missing after the name");
    }
    rest.skip_blanks();
    Ok(Some(match what {
        "HELP" => Line::Help(name, unescape_help(rest.0)),
        "UNIT" => Line::Unit(name, rest.word()),
        _ => Line::Type(name, metric_type(rest.0.trim_end())?),
    }))
}

fn metric_type(word: &str) -> Result<MetricType, &'static str> {
    Ok(match word {
        "counter" => MetricType::Counter,
        "gauge" => MetricType::Gauge,
        "histogram" => MetricType::Histogram,
        "gaugehistogram" => MetricType::GaugeHistogram,
        "summary" => MetricType::Summary,
        "stateset" => MetricType::StateSet,
        "info" => MetricType::Info,
        "unknown" | "untyped" => MetricType::Unknown,
        _ => return Err("the type is unknown"),
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    fn sample(line: &str, format: Format) -> Result<Sample<'_>, &'static str> {
        match read(line, format)? {
            Some(Line::Sample(sample)) => Ok(sample),
            other => panic!("{line}: {other:?}"),
        }
    }

    fn text(line: &str) -> (String, Vec<(String, String)>, f64, Option<f64>) {
        let found = sample(line, Format::Text).unwrap_or_else(|what| panic!("{line}: {what}"));
        let labels = found.labels.iter().map(|(key, value)| (key.to_string(), value.to_string()));
        (found.name.to_string(), labels.collect(), found.value, found.at)
    }

    #[test]
    fn samples_of_the_text_format() {
        let labels = |pairs: &[(&str, &str)]| -> Vec<(String, String)> {
            pairs.iter().map(|(key, value)| ((*key).into(), (*value).into())).collect()
        };
        let name = |text: &str| text.to_owned();
        for (line, expected) in [
            ("up 1", (name("up"), labels(&[]), 1.0, None)),
            (
                "  rule:cpu:avg\t0.5  1395066363000",
                (name("rule:cpu:avg"), labels(&[]), 0.5, Some(1_395_066_363.0)),
            ),
            ("a{} +Inf", (name("a"), labels(&[]), f64::INFINITY, None)),
            (
                r#"a{b="c\"d\\e\nf\x",} 1e3 -5"#,
                (name("a"), labels(&[("b", "c\"d\\e\nf\\x")]), 1000.0, Some(-0.005)),
            ),
            (
                r#"a { b = "c" , d="}" } 1"#,
                (name("a"), labels(&[("b", "c"), ("d", "}")]), 1.0, None),
            ),
            (
                r#"{"my.metric", "a b"="c", d="e"} 2"#,
                (name("my.metric"), labels(&[("a b", "c"), ("d", "e")]), 2.0, None),
            ),
        ] {
            assert_eq!(text(line), expected, "{line}");
        }
        assert!(text("a NaN").2.is_nan());
    }

    #[test]
    fn wrong_lines_are_errors() {
        for line in [
            "a",
            "a{",
            "a{b} 1",
            "a{b=c} 1",
            "a{b=\"c} 1",
            "a{b=\"c\" d=\"e\"} 1",
            "1a 1",
            "{} 1",
            "{\"a\",\"b\"} 1",
            "a{\"b\"} 1",
            "a x",
            "a 1 x",
            "a 1 2 3",
            "a 1 1.5",
            "a 1 # {b=\"c\"} 2",
            "# TYPE a nonsense",
            "# TYPE a-b gauge",
        ] {
            assert!(read(line, Format::Text).is_err(), "{line}");
        }
    }

    #[test]
    fn comments_and_their_escapes() {
        let read = |line| read(line, Format::Text).unwrap();
        assert_eq!(read("# a comment"), None);
        assert_eq!(read("#TYPE a gauge"), Some(Line::Type("a".into(), MetricType::Gauge)));
        assert_eq!(
            read("# HELP a b \\\\ c\\nd \\x"),
            Some(Line::Help("a".into(), "b \\ c\nd \\x".into()))
        );
        assert_eq!(read("# HELP a"), Some(Line::Help("a".into(), "".into())));
        assert_eq!(
            read("# TYPE \"a.b\" counter"),
            Some(Line::Type("a.b".into(), MetricType::Counter))
        );
        assert_eq!(read("# EOF"), None);
    }

    #[test]
    fn open_metrics_has_exemplars_seconds_and_an_end() {
        let open = |line| sample(line, Format::OpenMetrics);
        assert_eq!(open("a_total 5 1.5").unwrap().at, Some(1.5));
        assert_eq!(open("a_bucket{le=\"1\"} 5 # {trace=\"x\"} 0.5 1.5").unwrap().value, 5.0);
        assert_eq!(open("a_total 5 2.5 # {} 0.5").unwrap().at, Some(2.5));
        assert!(open("a_total 5 # {trace=\"x\"} y").is_err());
        assert!(open("a_total 5 # {trace=\"x\"").is_err());
        let mut lines = Lines::new("a 1\n# EOF\nb 1\n", Format::OpenMetrics);
        assert!(matches!(lines.next(), Some(Ok(Line::Sample(_)))));
        assert!(!lines.is_complete());
        assert_eq!(lines.next(), Some(Ok(Line::End)));
        assert_eq!(lines.next(), None);
        assert!(lines.is_complete());
    }

    #[test]
    fn a_bad_line_costs_no_other_line() {
        let lines = Lines::new("a 1\r\nb x\nc 3", Format::Text);
        let found: Vec<_> = lines.map(|line| line.map_err(|error| error.line)).collect();
        assert!(
            matches!(&found[..], [Ok(Line::Sample(_)), Err(2), Ok(Line::Sample(_))]),
            "{found:?}"
        );
    }
}
