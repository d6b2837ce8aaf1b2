//! Objects of a JSON text, one after another, with values as PostgreSQL prints them for `jsonb`.

use super::jsonb::{Members, Reader, text_of};

/// Keys of an object.
const KEYS_MAX: usize = 16;

/// The objects of a JSON text: those of its list, or its only one. Each has its keys, in the order of the text, with the
/// text of each value as PostgreSQL prints it for `jsonb`.
///
/// It reads one object at a time, so that a reader may stop at a limit. After an error there is no further object.
#[derive(Debug)]
pub struct JsonObjects<'a> {
    reader: Reader<'a>,
    place: Place,
}

/// The part of the text that comes next.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Place {
    Start,
    /// After an object of a list.
    List,
    /// After the only object.
    End,
    /// After the whole text, or an error.
    Done,
}

impl<'a> JsonObjects<'a> {
    /// Reads a text.
    pub const fn new(text: &'a str) -> Self {
        Self { reader: Reader::new(text), place: Place::Start }
    }

    fn advance(&mut self) -> Result<Option<Members>, &'static str> {
        self.reader.skip_blanks();
        match self.place {
            Place::Start if !self.reader.take("[") => {
                self.place = Place::End;
                return self.one().map(Some);
            }
            Place::Start => {
                self.reader.skip_blanks();
                if !self.reader.take("]") {
                    self.place = Place::List;
                    return self.one().map(Some);
                }
            }
            Place::List if self.reader.take(",") => return self.one().map(Some),
            Place::List if !self.reader.take("]") => {
                return Err("`,` or `]` is missing in a list");
            }
            Place::List | Place::End => {}
            Place::Done => return Ok(None),
        }
        self.reader.skip_blanks();
        if self.reader.rest.is_empty() { Ok(None) } else { Err("a text follows the JSON value") }
    }

    fn one(&mut self) -> Result<Members, &'static str> {
        self.reader.skip_blanks();
        if !self.reader.take("{") {
            return Err("it is no JSON object");
        }
        self.reader.nested(|reader| reader.members(KEYS_MAX))
    }
}

impl Iterator for JsonObjects<'_> {
    type Item = Result<Members, &'static str>;

    fn next(&mut self) -> Option<Self::Item> {
        let next = self.advance();
        if !matches!(next, Ok(Some(_))) {
            self.place = Place::Done;
        }
        next.transpose()
    }
}

/// The text of a value of [`JsonObjects`], as PostgreSQL's `->>` gives it: none of null.
pub fn json_text(value: &str) -> Option<String> {
    text_of(value)
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    fn values(text: &str) -> Result<Vec<String>, &'static str> {
        let member = |(key, value): (String, String)| format!("{key}={value}");
        let one = |members: Members| members.into_iter().map(member).collect::<Vec<_>>().join(" ");
        JsonObjects::new(text).map(|found| found.map(one)).collect()
    }

    #[test]
    fn objects_of_a_list_and_a_single_one() {
        let row = r#"a="x" b=1.50 c={"k": [1, 2]}"#;
        let object = r#"{"a": "x", "b":1.50,"c":{"k":[1,2]} }"#;
        assert_eq!(values(&format!(" {object}\n")).unwrap(), [row]);
        assert_eq!(values(&format!("[{object} , {object}]")).unwrap(), [row, row]);
        assert_eq!(values("[]").unwrap(), [""; 0]);
        assert_eq!(values("[{}]").unwrap(), [""]);
        assert_eq!(json_text(r#""x\n""#).as_deref(), Some("x\n"));
    }

    #[test]
    fn other_texts_are_rejected_at_the_first_error() {
        for text in ["", "7", "[1]", "[{}", "[{}{}]", "[{},]", "{} {}", "[] x", "{\"a\":}", "[{}]]"]
        {
            let mut objects = JsonObjects::new(text);
            assert!(objects.by_ref().any(|found| found.is_err()), "{text}");
            assert_eq!(objects.next(), None, "{text}");
        }
        let many: Vec<String> = (0..=KEYS_MAX).map(|n| format!("\"{n}\": 1")).collect();
        assert!(values(&format!("{{{}}}", many.join(","))).is_err());
    }

    proptest! {
        #[test]
        fn no_text_panics(text in "[\\[\\]{}\",:a1 ]{0,40}") {
            values(&text).ok();
        }
    }
}
