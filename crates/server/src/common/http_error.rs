//! Error responses in PostgREST's format, with a code that scripts may match.

use crate::common::json_error;
use api::Problem;
use axum::http::header::{CONTENT_TYPE, RETRY_AFTER, WWW_AUTHENTICATE};
use axum::http::{HeaderValue, StatusCode};
use axum::response::{IntoResponse, Response};

/// An error response.
#[derive(Clone, Debug)]
pub(crate) struct HttpError {
    /// HTTP status.
    pub(crate) status: StatusCode,
    /// Error code of PostgreSQL or PostgREST.
    pub(crate) code: &'static str,
    /// The problem, and what to do.
    pub(crate) message: String,
    /// Further details.
    pub(crate) details: Option<String>,
    /// Suggests the closest known name.
    pub(crate) hint: Option<String>,
    /// Reason under which `/metrics` counts the error.
    pub(crate) why: Why,
    /// Seconds in the header `Retry-After`, for a reason that passes.
    pub(crate) retry_after: u32,
}

/// Default of [`HttpError::retry_after`].
const RETRY_AFTER_SECONDS: u32 = 2;

macro_rules! whys {
    ($($(#[$doc:meta])* $name:ident $word:literal,)*) => {
        /// Reasons of refusals: the label `reason` in `/metrics`.
        #[derive(Clone, Copy, Debug, PartialEq, Eq)]
        pub(crate) enum Why { $($(#[$doc])* $name,)* }

        impl Why {
            /// Every reason.
            pub(crate) const ALL: [Self; [$($word),*].len()] = [$(Self::$name),*];

            /// Returns the label value.
            pub(crate) const fn word(self) -> &'static str {
                match self { $(Self::$name => $word,)* }
            }
        }
    };
}

whys! {
    /// No caller, or a wrong token.
    Identity "identity",
    /// A caller without the necessary rights.
    Rights "rights",
    /// A Host header that does not name this server.
    Host "host",
    /// A write from a page of another origin.
    Origin "origin",
    /// An invalid body or parameter.
    Malformed "malformed",
    /// Not found, or an unknown parameter.
    Unknown "unknown",
    /// A body or response beyond its limit.
    TooLarge "too_large",
    /// The client took too long.
    TooSlow "too_slow",
    /// Too many requests at a time.
    Busy "busy",
    /// The disk or the log is full.
    Full "full",
    /// The server is stopping.
    Stopping "stopping",
    /// An internal error of the server.
    Fault "fault",
}

impl HttpError {
    pub(crate) fn new(
        status: StatusCode,
        code: &'static str,
        why: Why,
        message: impl Into<String>,
    ) -> Self {
        let (message, retry_after) = (message.into(), RETRY_AFTER_SECONDS);
        Self { status, code, message, details: None, hint: None, why, retry_after }
    }

    /// An invalid body, header or parameter.
    pub(crate) fn malformed(message: impl Into<String>) -> Self {
        Self::new(StatusCode::BAD_REQUEST, "PGRST102", Why::Malformed, message)
    }

    /// A body that is not valid JSON of its type. For an unknown key, the hint suggests the closest known
    /// key.
    pub(crate) fn unreadable(body: &[u8], error: &serde_json::Error) -> Self {
        let message = json_error::describe(body, error);
        // Message format of serde: "unknown field `x`, expected one of `a`, `b`".
        let names = message.strip_prefix("unknown field ").unwrap_or_default();
        let mut names = names.split('`').skip(1).step_by(2);
        let meant = names.next().and_then(|key| config::nearest(key, names));
        let hint = meant.map(|near| format!("did you mean `{near}`?"));
        Self::malformed(message).hint(hint)
    }

    /// An unidentified caller.
    pub(crate) fn unidentified(message: impl Into<String>) -> Self {
        Self::new(StatusCode::UNAUTHORIZED, "28000", Why::Identity, message)
    }

    /// A caller without the necessary rights.
    pub(crate) fn forbidden(message: impl Into<String>) -> Self {
        Self::new(StatusCode::FORBIDDEN, "42501", Why::Rights, message)
    }

    /// Nothing exists under this name.
    pub(crate) fn not_found(message: impl Into<String>) -> Self {
        Self::new(StatusCode::NOT_FOUND, "PGRST125", Why::Unknown, message)
    }

    /// A body or response beyond its limit.
    pub(crate) fn too_large(message: impl Into<String>) -> Self {
        Self::new(StatusCode::PAYLOAD_TOO_LARGE, "54000", Why::TooLarge, message)
    }

    /// Too many requests at a time; the client should retry.
    pub(crate) fn busy(message: impl Into<String>) -> Self {
        Self::new(StatusCode::TOO_MANY_REQUESTS, "53300", Why::Busy, message)
    }

    /// An internal error. Its cause goes to the log, not to the client.
    pub(crate) fn fault(what: &dyn std::fmt::Display) -> Self {
        log::error!("a request failed internally: {what}");
        let message = "internal error; the server's log has the cause";
        Self::new(StatusCode::INTERNAL_SERVER_ERROR, "XX000", Why::Fault, message)
    }

    #[must_use]
    pub(crate) fn hint(mut self, hint: Option<String>) -> Self {
        self.hint = hint;
        self
    }
}

impl IntoResponse for HttpError {
    fn into_response(self) -> Response {
        let Self { status, code, message, details, hint, why, retry_after } = self;
        let problem = Problem { code: code.to_owned(), message, details, hint };
        let body = serde_json::to_vec(&problem).unwrap_or_default();
        let mut response = (status, body).into_response();
        let headers = response.headers_mut();
        headers.insert(CONTENT_TYPE, HeaderValue::from_static("application/json; charset=utf-8"));
        if status == StatusCode::UNAUTHORIZED {
            headers.append(WWW_AUTHENTICATE, HeaderValue::from_static("Bearer"));
        }
        if matches!(why, Why::Busy | Why::Full | Why::Stopping) {
            headers.insert(RETRY_AFTER, retry_after.into());
        }
        response.extensions_mut().insert(why);
        response
    }
}
