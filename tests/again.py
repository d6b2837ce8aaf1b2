"""Runs the tests that failed in a log of `cargo test` once more: one at a time, with nothing beside them.

usage: again.py LOG UNSTABLE CARGO_ARGUMENT...

LOG is the output of `cargo test CARGO_ARGUMENT...`. Exits with 0 if every failed test passes now; their names are
then appended to UNSTABLE. A test program that crashed, a failed documentation test and more than MOST failures
are not tried again: they are no matter of a busy machine.
"""

import json
import os
import re
import subprocess
import sys

MOST = 8
RUNNING = re.compile(r"^\s+Running .*\((\S+)\)$")


def main():
    log, unstable, *arguments = sys.argv[1:]
    with open(log, errors="replace") as lines:
        failed, why_not = failed_tests(lines)
    if not why_not and not failed:
        why_not = "no failed test is named: the build failed, or a program crashed"
    if not why_not and len(failed) > MOST:
        why_not = f"{len(failed)} tests failed"
    if why_not:
        print(f"== not tried again: {why_not}")
        return 1
    folders = package_folders(arguments)
    still = [name for program, name in failed if not passes(program, name, folders)]
    if still:
        print(f"== failed again, alone: {', '.join(still)}")
        return 1
    with open(unstable, "a") as out:
        out.writelines(f"{name}\n" for _, name in failed)
    return 0


def failed_tests(lines):
    """Pairs (program, test) from the list that each program prints last, and why they cannot be tried again."""
    failed, program, listed, finished = [], None, False, True
    for line in lines:
        line = line.rstrip("\n")
        running = RUNNING.match(line)
        if running or line.lstrip().startswith("Doc-tests "):
            if not finished:
                return [], f"{program} ended without a result"
            program, listed, finished = running and running[1], False, False
        elif line == "failures:":
            # The list occurs twice: with the output of each test, then with the names alone.
            listed, failed = True, [pair for pair in failed if pair[0] != program]
        elif line.startswith("test result:"):
            if program is None and line.startswith("test result: FAILED"):
                return [], "a documentation test failed"
            listed, finished = False, True
        elif listed and line.startswith("    ") and line[4:5].strip():
            name = line.strip().removesuffix(" - should panic")
            if (program, name) not in failed and " " not in name:
                failed.append((program, name))
    if not finished:
        return [], f"{program} ended without a result"
    return failed, None


def package_folders(arguments):
    """The folder of the package of each test program: cargo runs it there."""
    command = ["cargo", "test", "--no-run", "--message-format=json", *arguments]
    out = subprocess.run(command, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL, check=True, text=True).stdout
    messages = (json.loads(line) for line in out.splitlines() if line.startswith("{"))
    return {
        os.path.realpath(message["executable"]): os.path.dirname(message["manifest_path"])
        for message in messages
        if message.get("executable")
    }


def passes(program, name, folders):
    path = os.path.realpath(program)
    folder = folders.get(path)
    if folder is None:
        print(f"== {program} is not among the test programs")
        return False
    print(f"== once more, alone: {name}", flush=True)
    environment = dict(os.environ, CARGO_MANIFEST_DIR=folder)
    command = [path, "--exact", name, "--test-threads=1"]
    done = subprocess.run(command, cwd=folder, env=environment, stdout=subprocess.PIPE, stderr=subprocess.STDOUT)
    text = done.stdout.decode(errors="replace")
    print(text, end="", flush=True)
    return done.returncode == 0 and "test result: ok. 1 passed" in text


if __name__ == "__main__":
    sys.exit(main())
