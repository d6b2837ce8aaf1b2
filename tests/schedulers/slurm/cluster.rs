//! Slurm from Debian's packages: every daemon on loopback, with the test's own ports and folder.

use crate::common::programs::{Running, output, until};
use std::net::TcpListener;
use std::os::unix::fs::{PermissionsExt, chown};
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use std::sync::MutexGuard;
use std::time::Duration;

/// UID that runs slurmrestd, which refuses root and Slurm's own user.
const NOBODY: u32 = 65_534;

pub(crate) struct Cluster {
    // Dropped in this order.
    rest: Option<Running>,
    nodes: Vec<Running>,
    pub(crate) controller: Option<Running>,
    database: Vec<Running>,
    pub(crate) dir: tempfile::TempDir,
    count: usize,
    _alone: MutexGuard<'static, ()>,
}

impl Cluster {
    /// Starts nodes `n1` to `nN` on this machine, idle; `None` if a package is not installed.
    pub(crate) fn start(test: &str, count: usize) -> Option<Self> {
        let alone = crate::common::up::alone();
        for program in
            ["slurmctld", "slurmd", "slurmdbd", "slurmrestd", "munged", "mariadbd", "sbatch"]
        {
            if !["/usr/sbin", "/usr/bin"].iter().any(|dir| Path::new(dir).join(program).is_file()) {
                println!("{test} needs {program} and did not run; tests/all.sh installs it");
                return None;
            }
        }
        let dir = tempfile::tempdir().unwrap();
        let mut cluster = Self {
            rest: None,
            nodes: Vec::new(),
            controller: None,
            database: Vec::new(),
            dir,
            count,
            _alone: alone,
        };
        for tree in cluster.trees() {
            assert!(!tree.is_dir(), "{} is another's; it is left alone", tree.display());
        }
        cluster.write_files();
        cluster.start_database();
        cluster.start_controller();
        for node in cluster.names() {
            cluster.start_node(&node);
        }
        until("idle nodes", Duration::from_secs(60), || {
            let (_, idle, _) =
                output(cluster.command("sinfo").args(["-h", "-t", "idle", "-o", "%D"]));
            (idle.trim() == count.to_string()).then_some(())
        });
        Some(cluster)
    }

    pub(crate) fn names(&self) -> Vec<String> {
        (1..=self.count).map(|node| format!("n{node}")).collect()
    }

    pub(crate) fn conf(&self) -> PathBuf {
        self.path("slurm.conf")
    }

    pub(crate) fn path(&self, name: &str) -> PathBuf {
        self.dir.path().join(name)
    }

    /// Returns the command of a Slurm program for this cluster.
    pub(crate) fn command(&self, program: &str) -> Command {
        let mut command = Command::new(program);
        command.env("SLURM_CONF", self.conf()).env("TZ", "UTC").current_dir(self.dir.path());
        command
    }

    /// Runs a Slurm program, and returns its output.
    pub(crate) fn request(&self, program: &str, arguments: &[&str]) -> String {
        let (code, out, errors) = output(self.command(program).args(arguments));
        assert_eq!(code, 0, "{program} {arguments:?}: {errors}");
        out.trim().to_owned()
    }

    /// Submits a script, and returns the job's ID.
    pub(crate) fn submit(&self, options: &[&str], script: &str) -> i64 {
        let arguments =
            [&["--parsable", "--output=/dev/null"], options, &["--wrap", script]].concat();
        self.request("sbatch", &arguments).parse().unwrap()
    }

    /// Starts slurmrestd on a socket, and returns the socket's path.
    pub(crate) fn start_rest(&mut self) -> PathBuf {
        let folder = self.path("rest");
        std::fs::create_dir(&folder).unwrap();
        chown(&folder, Some(NOBODY), Some(NOBODY)).unwrap();
        let socket = folder.join("rest.sock");
        let mut command = self.command("setpriv");
        command.args([format!("--reuid={NOBODY}"), format!("--regid={NOBODY}")]);
        command.args(["--clear-groups", "slurmrestd", "-a", "rest_auth/local"]);
        command.args(["-s", "openapi/v0.0.38,openapi/dbv0.0.38"]);
        command.arg(format!("unix:{}", socket.display())).stdout(Stdio::null());
        self.rest = Some(Running::start(&mut command));
        until("slurmrestd", Duration::from_secs(20), || socket.try_exists().unwrap().then_some(()));
        socket
    }

    pub(crate) fn start_controller(&mut self) {
        let mut command = self.command("/usr/sbin/slurmctld");
        self.controller = Some(Running::start(command.args(["-D", "-i"]).stdout(Stdio::null())));
    }

    pub(crate) fn end_controller(&mut self) {
        self.controller.take().unwrap().end();
    }

    fn start_node(&mut self, node: &str) {
        let mut command = self.command("/usr/sbin/slurmd");
        self.nodes.push(Running::start(command.args(["-D", "-N", node]).stdout(Stdio::null())));
    }

    /// Starts munge, MariaDB and slurmdbd, one after another.
    fn start_database(&mut self) {
        let at = |name: &str| self.path(name).display().to_string();
        let mut munge = Command::new("/usr/sbin/munged");
        munge.args(["--foreground", "--force", "--num-threads=4"]);
        for (option, file) in [
            ("key-file", "munge.key"),
            ("socket", "munge.sock"),
            ("pid-file", "munge.pid"),
            ("log-file", "munge.log"),
            ("seed-file", "munge.seed"),
        ] {
            munge.arg(format!("--{option}={}", at(file)));
        }
        let own = ["--no-defaults", "--user=root"];
        let data = format!("--datadir={}", at("db"));
        let mut install = Command::new("mariadb-install-db");
        install.args(own).args([
            &data,
            "--auth-root-authentication-method=normal",
            "--skip-test-db",
        ]);
        let (code, _, errors) = output(&mut install);
        assert_eq!(code, 0, "{errors}");
        let port = std::fs::read_to_string(self.path("db.port")).unwrap();
        let socket = format!("--socket={}", at("db.sock"));
        let mut server = Command::new("/usr/sbin/mariadbd");
        server.args(own).args([&data, &socket, "--bind-address=127.0.0.1"]);
        server.args([format!("--port={port}"), format!("--pid-file={}", at("db.pid"))]);
        let (munge, server) = (Running::start(&mut munge), Running::start(&mut server));
        let users = "CREATE USER slurm@localhost IDENTIFIED BY 'slurm'; \
                     GRANT ALL ON slurm_acct_db.* TO slurm@localhost;";
        until("MariaDB", Duration::from_secs(60), || {
            let mut client = Command::new("mariadb");
            client.args(["--no-defaults", &socket, "-e", users]);
            (output(&mut client).0 == 0).then_some(())
        });
        let mut command = self.command("/usr/sbin/slurmdbd");
        let accounts = Running::start(command.arg("-D").stdout(Stdio::null()));
        self.database = vec![accounts, server, munge];
        for words in [
            &["add", "cluster", "alpha"][..],
            &["add", "account", "physics"],
            &["add", "user", "root", "account=physics"],
        ] {
            until("sacctmgr", Duration::from_secs(30), || {
                let mut command = self.command("sacctmgr");
                (output(command.arg("-i").args(words)).0 == 0).then_some(())
            });
        }
    }

    fn write_files(&self) {
        let host = std::fs::read_to_string("/proc/sys/kernel/hostname").unwrap();
        let host = host.trim();
        let dir = self.dir.path();
        std::fs::set_permissions(dir, std::fs::Permissions::from_mode(0o755)).unwrap();
        std::fs::create_dir(dir.join("state")).unwrap();
        std::fs::write(dir.join("munge.key"), [7; 1024]).unwrap();
        std::fs::set_permissions(dir.join("munge.key"), std::fs::Permissions::from_mode(0o400))
            .unwrap();
        let ports = free_ports(self.count + 3);
        std::fs::write(dir.join("db.port"), ports[0].to_string()).unwrap();
        let fill = |text: &str| {
            text.replace("@DIR", &dir.display().to_string())
                .replace("@HOST", host)
                .replace("@CTLD", &ports[2].to_string())
                .replace("@DBD", &ports[1].to_string())
                .replace("@DB", &ports[0].to_string())
        };
        let mut conf = fill(SLURM_CONF);
        for (name, port) in self.names().iter().zip(&ports[3..]) {
            conf += &format!(
                "NodeName={name} NodeAddr=127.0.0.1 NodeHostname={host} Port={port} CPUs=2 RealMemory=2000\n"
            );
        }
        conf += &format!("PartitionName=main Nodes=n[1-{}] Default=YES State=UP\n", self.count);
        std::fs::write(self.conf(), conf).unwrap();
        std::fs::write(dir.join("cgroup.conf"), CGROUP_CONF).unwrap();
        let database = dir.join("slurmdbd.conf");
        std::fs::write(&database, fill(SLURMDBD_CONF)).unwrap();
        std::fs::set_permissions(&database, std::fs::Permissions::from_mode(0o600)).unwrap();
    }

    /// Returns the cgroups that Slurm created for these nodes.
    fn trees(&self) -> Vec<PathBuf> {
        let hierarchies = std::fs::read_dir("/sys/fs/cgroup").unwrap();
        let names = self.names();
        let of = |dir: PathBuf| names.iter().map(move |n| dir.join(format!("slurm_{n}"))).collect();
        hierarchies.flat_map(|dir| -> Vec<PathBuf> { of(dir.unwrap().path()) }).collect()
    }
}

impl Drop for Cluster {
    fn drop(&mut self) {
        if std::thread::panicking() {
            for log in ["ctld.log", "n1.log", "dbd.log"] {
                let text = std::fs::read_to_string(self.path(log)).unwrap_or_default();
                let last: Vec<&str> = text.lines().rev().take(20).collect();
                println!("-- {log}, its last lines, the last first\n{}", last.join("\n"));
            }
        }
        // slurmd does not end jobs when it exits.
        output(self.command("scancel").arg("--user=root"));
        for _ in 0..100 {
            let (_, jobs, _) = output(self.command("squeue").args(["-h", "-t", "R,CG"]));
            if jobs.trim().is_empty() {
                break;
            }
            std::thread::sleep(Duration::from_millis(100));
        }
        let order = [self.rest.take(), self.controller.take()].into_iter().flatten();
        for mut running in order.chain(self.nodes.drain(..)).chain(self.database.drain(..)) {
            // Kill a process that does not exit on SIGTERM, so that the test leaves none behind.
            let mut rounds = 0..100;
            output(Command::new("kill").arg(running.child.id().to_string()));
            while matches!(running.child.try_wait(), Ok(None)) && rounds.next().is_some() {
                std::thread::sleep(Duration::from_millis(100));
            }
        }
        for tree in self.trees() {
            remove(&tree);
        }
    }
}

/// Removes a cgroup hierarchy without processes.
fn remove(tree: &Path) {
    let Ok(below) = std::fs::read_dir(tree) else { return };
    for entry in below.flatten().filter(|entry| entry.path().is_dir()) {
        remove(&entry.path());
    }
    std::fs::remove_dir(tree).ok();
}

/// Returns free ports; it holds all of them until the last is found.
fn free_ports(count: usize) -> Vec<u16> {
    let held: Vec<TcpListener> =
        (0..count).map(|_| TcpListener::bind("127.0.0.1:0").unwrap()).collect();
    held.iter().map(|listener| listener.local_addr().unwrap().port()).collect()
}

const SLURM_CONF: &str = "\
ClusterName=alpha
SlurmctldHost=@HOST(127.0.0.1)
SlurmUser=root
SlurmdUser=root
AuthType=auth/munge
AuthInfo=socket=@DIR/munge.sock
CredType=cred/munge
SlurmctldPort=@CTLD
StateSaveLocation=@DIR/state
SlurmdSpoolDir=@DIR/spool.%n
SlurmctldPidFile=@DIR/ctld.pid
SlurmdPidFile=@DIR/%n.pid
SlurmctldLogFile=@DIR/ctld.log
SlurmdLogFile=@DIR/%n.log
ProctrackType=proctrack/cgroup
TaskPlugin=task/cgroup,task/affinity
JobAcctGatherType=jobacct_gather/cgroup
JobAcctGatherFrequency=1
SelectType=select/cons_tres
SelectTypeParameters=CR_Core_Memory
AccountingStorageType=accounting_storage/slurmdbd
AccountingStorageHost=127.0.0.1
AccountingStoragePort=@DBD
AccountingStoragePass=@DIR/munge.sock
AccountingStoreFlags=job_comment
MpiDefault=none
MailProg=/bin/true
";

const CGROUP_CONF: &str = "\
CgroupPlugin=cgroup/v1
CgroupMountpoint=/sys/fs/cgroup
ConstrainCores=yes
ConstrainRAMSpace=yes
";

const SLURMDBD_CONF: &str = "\
AuthType=auth/munge
AuthInfo=socket=@DIR/munge.sock
DbdHost=@HOST
DbdAddr=127.0.0.1
DbdPort=@DBD
SlurmUser=root
LogFile=@DIR/dbd.log
PidFile=@DIR/dbd.pid
StorageType=accounting_storage/mysql
StorageHost=127.0.0.1
StoragePort=@DB
StorageUser=slurm
StoragePass=slurm
StorageLoc=slurm_acct_db
";
