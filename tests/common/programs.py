"""Builds and runs the test programs of cargo packages.

usage: programs.py build LIST CARGO_ARGUMENT...
       programs.py run LIST UNSTABLE (--only | --except) PACKAGE|"PACKAGE FILE" [ARGUMENT_OF_THE_TESTS...]

`build` compiles the tests of `cargo test CARGO_ARGUMENT...` and writes the programs to the file LIST. `run` starts
them one after the other, without cargo, so that another cargo command can hold the build folder meanwhile.

A test that fails is run once more at the end, alone: a busy machine is no defect of the program. If it passes, `run`
succeeds and appends its name to the file UNSTABLE. A program that crashed and more than MOST failures are not
tried again, because a busy machine does not cause them.
"""

import contextlib
import json
import os
import signal
import subprocess
import sys
import threading

MOST = 8


def main():
    action, listed, *rest = sys.argv[1:]
    if action == "build":
        return build(listed, rest)
    unstable, choice, package, *arguments = rest
    with open(listed) as file:
        programs = [p for p in json.load(file) if (package in (p["package"], p["name"])) == (choice == "--only")]
    failed, crashed = [], []
    for program in programs:
        ended, names = run(program, arguments)
        failed += [(program, name) for name in names]
        if not ended:
            crashed.append(program["name"])
    if crashed:
        print(f"== ended without a result: {', '.join(crashed)}")
    elif len(failed) > MOST:
        print(f"== not tried again: {len(failed)} tests failed")
    if crashed or len(failed) > MOST:
        return 1
    still = [name for program, name in failed if not passes(program, name)]
    if still:
        print(f"== failed again, alone: {', '.join(still)}")
        return 1
    with open(unstable, "a") as out:
        out.writelines(f"{program['name']}: {name}\n" for program, name in failed)
    return 0


def build(listed, arguments):
    command = ["cargo", "test", "--no-run", "--message-format=json-render-diagnostics", *arguments]
    programs = []
    with subprocess.Popen(command, stdout=subprocess.PIPE, text=True) as cargo:
        for line in cargo.stdout:
            message = json.loads(line) if line.startswith("{") else {}
            if message.get("executable") and message["profile"]["test"]:
                programs.append(described(message))
    if cargo.returncode == 0:
        # By package, so that the output has the order of `cargo test`.
        programs.sort(key=lambda program: (program["folder"], program["name"]))
        with open(listed, "w") as out:
            json.dump(programs, out, indent=1)
    return cargo.returncode


def described(message):
    folder = os.path.dirname(message["manifest_path"])
    source = os.path.relpath(message["target"]["src_path"], folder)
    # "path+file:///FOLDER#NAME@VERSION", or "#VERSION" where the folder has the package's name.
    package = message["package_id"].rpartition("#")[2].rpartition("@")[0] or os.path.basename(folder)
    return {"package": package, "folder": folder, "name": f"{package} {source}", "path": message["executable"]}


def run(program, arguments):
    """Whether the program printed a result, and the tests that failed."""
    print(f"     Running {program['name']}", flush=True)
    failed, ended = [], False
    with started(program, arguments) as tests:
        for line in tests.stdout:
            sys.stdout.write(line)
            sys.stdout.flush()
            if line == "failures:\n":
                # The list occurs twice: with the output of each test, then with the names alone.
                failed = []
            elif line.startswith("test result:"):
                ended = True
            elif line.startswith("    ") and " " not in line.strip() and line.strip():
                failed.append(line.strip())
    ok = tests.returncode == 0
    return (ok or (ended and bool(failed))), ([] if ok else failed)


def passes(program, name):
    print(f"== once more, alone: {name}", flush=True)
    with started(program, ["--exact", name, "--test-threads=1"]) as tests:
        text = tests.stdout.read()
    print(text, end="", flush=True)
    return tests.returncode == 0 and "test result: ok. 1 passed" in text


def started(program, arguments):
    """Starts a test program. When it ends, so do the processes that it left in its group: they would hold the pipe."""
    folder = program["folder"]
    environment = dict(os.environ, CARGO_MANIFEST_DIR=folder)
    tests = subprocess.Popen([program["path"], *arguments], cwd=folder, env=environment, errors="replace",
                             stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True, start_new_session=True)
    running[:] = [tests.pid]
    threading.Thread(target=end_group, args=[tests.pid], daemon=True).start()
    return tests


def end_group(pid):
    # Suppressed: the program ended without leaving a process, and its output has been read to its end.
    with contextlib.suppress(ChildProcessError, ProcessLookupError):
        # WNOWAIT: until the program is reaped, no other group can have its number.
        os.waitid(os.P_PID, pid, os.WEXITED | os.WNOWAIT)
        os.killpg(pid, signal.SIGKILL)


def interrupted(*_):
    """Signals of the terminal reach this program only, not the group of the tests."""
    for pid in running:
        os.killpg(pid, signal.SIGKILL)
    sys.exit(1)


running = []
if __name__ == "__main__":
    signal.signal(signal.SIGINT, interrupted)
    signal.signal(signal.SIGTERM, interrupted)
    sys.exit(main())
