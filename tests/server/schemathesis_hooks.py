"""What schemathesis cannot know of the server from its OpenAPI document: what a body of batches looks like, and
which requests are refused though each of their parameters is right."""

import re

import schemathesis
from hypothesis import strategies
from schemathesis.specs.openapi.checks import negative_data_rejection, positive_data_acceptance

FRAMES = "application/x-jobmeter-batches"
frames = strategies.binary() | strategies.binary(max_size=200).map(lambda rest: b"JMB" + rest)
schemathesis.openapi.media_type(FRAMES, frames)
schemathesis.serializer.alias(FRAMES, "application/octet-stream")

# Constraints between parameters, and times that depend on the clock, which OpenAPI cannot express. The checks
# tolerate no other rejection of a valid request.
TOGETHER = {
    "`start` is after `end`",
    "`cluster` needs `job` beside it",
    "`job` and `cluster` name two clusters",
    "Missing 'devices', 'nodes' or 'job_id' argument",
    "`start` is seconds since 1970, from 2000 to a day from now",
    "`start` is more than 60 s off the server's clock; a job is told of when it begins, and clocks are set by NTP",
    "`stop` is seconds since 1970, from 2000 to a day from now",
    "a change changes something of `sources` or `bursts`",
    "`nodes` or `job` says where metrics are promoted",
    # An administrator asks for a `read` token without a user's name.
    "`read` wants the user whose sight it is: read:NAME",
    # `promotions.time_max` of this server.
    "`for_seconds` is 1 to 604800 seconds",
    "with `usage`, `limit` is 1000 at most",
    "`cluster` names a scheduler; `local` jobs are told without one",
    "`submit` is seconds since 1970, from 2000 to a day from now",
    "`steps` is seconds since 1970, from 2000 to a day from now",
}
# Rejections that the schema cannot express. JSON Schema accepts 1.0 as an integer and any hour as a UTC
# offset; the server and PostgreSQL do not. A list in a form field that the document defines as a single value
# becomes the same name twice. Node lists, also of a scheduler's job, and regular expressions have no short
# pattern. The document cannot list the existing users.
WORDS = re.compile(
    "(?s)`.*` is no list of nodes such as |`nodes`: |`metric` is (no|a) regular expression|the parameter `.*` is given twice|"
    "no user `.*` (is known here|in /etc/passwd); write the user's number|job [0-9]+ is known in several clusters|[0-9_]+ is .* and .*; write which"
    "|"
    "invalid value: integer `-?[0-9]+`, expected [iu](32|64)|"
    "invalid type: floating point `-?[0-9]+[.]0`, expected [iu](32|64)|"
    'invalid input syntax for type timestamp with time zone: ".*[+-](1[6-9]|2[0-3]):[0-5][0-9]"'
)


@schemathesis.check
def valid_requests_are_accepted(ctx, response, case):
    if response.status_code == 400:
        message = response.json()["message"]
        if message in TOGETHER or WORDS.match(message):
            return
    # Only the server can tell whether bytes are a frame, and whether a text is an SQL statement.
    if case.operation.path in ("/v1/batches", "/api/v1/sql"):
        return
    positive_data_acceptance(ctx, response, case)


@schemathesis.check
def invalid_requests_are_refused(ctx, response, case):
    # schemathesis sends an object in place of a list as Python's text of it, which may be a valid name, or as
    # nothing.
    if any(str(value).startswith("{'") for value in (case.query or {}).values()):
        return
    # A list of empty names is sent like an empty list: as nothing, or as commas.
    def is_empty(value):
        names = value if isinstance(value, list) else [value]
        return all(isinstance(name, str) and not name.strip(",") for name in names)

    if any(is_empty(value) for value in (case.query or {}).values()):
        return
    negative_data_rejection(ctx, response, case)
