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
    "`cluster` needs `job`",
    "`job` and `cluster` name different clusters",
    "Missing 'devices', 'nodes' or 'job_id' argument",
    "`start` differs from the server's clock by more than 60 s; register a job when it starts, and synchronise the clocks",
    "the change is empty: set `sources` or `bursts`",
    "name the nodes or the job of the promotion: `nodes` or `job`",
    # An administrator asks for a `read` token without a user's name.
    "`read` needs a user: read:NAME",
    # `promotions.time_max` of this server.
    "`for_seconds` must be 1 to 604800 seconds (1s to 7d)",
    "with `usage`, `limit` must be 1000 or less",
    "`cluster` must be a scheduler's cluster; omit it to register a `local` job",
}
# Rejections that the schema cannot express. JSON Schema accepts 1.0 as an integer and any hour as a UTC
# offset; the server and PostgreSQL do not. A list in a form field that the document defines as a single value
# becomes the same name twice. Node lists, also of a scheduler's job, and regular expressions have no short
# pattern; neither have unprintable characters beyond U+FFFF. The document cannot list the existing users. The latest
# time follows the clock.
WORDS = re.compile(
    "(?s)`(start|stop|submit|steps)` must be seconds since 1970, between the year 2000 and |"
    r".*has the character '\\u\{(1bca|1d17|e0)[0-9a-f]{1,3}\}'|"
    "`.*` is not a list of nodes such as |`nodes`: |`metric` is (not a|a) regular expression|duplicate parameter `.*`|"
    "(the server knows no user `.*`|no user `.*` in /etc/passwd); use the user ID instead|job [0-9]+ is known in several clusters|[0-9_]+ is ambiguous: .* and .*; add the cluster"
    "|"
    "(`.*`: )?expected a whole number.*, found -?[0-9]+([.]0)?$|"
    "there is no source `.*` in agents( and pollers)? of this version$|the source `.*` (runs a program|cannot have a burst|has no setting)|"
    "there is no event `.*`; write a name|"
    # Columns, order and conditions of rows have a grammar of their own.
    '"failed to parse (select parameter|order|logic tree|filter) |column .* does not exist$|a parameter is not UTF-8, or has a NUL: |'
    'invalid input syntax for type timestamp with time zone: ".*[+-](1[6-9]|2[0-3]):[0-5][0-9]"'
)


@schemathesis.check
def valid_requests_are_accepted(ctx, response, case):
    if response.status_code == 400:
        message = response.json()["message"]
        if message in TOGETHER or WORDS.match(message):
            return
    # Only the server can tell whether bytes are a frame, whether a text is an SQL statement, and which rows it can store.
    insertions = ("/rpc/insert_metrics", "/rpc/insert_user_metrics")
    if case.operation.path in ("/v1/batches", "/api/v1/sql", *insertions):
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
    # schemathesis does not count this status as a rejection.
    if response.status_code == 416:
        return
    negative_data_rejection(ctx, response, case)
