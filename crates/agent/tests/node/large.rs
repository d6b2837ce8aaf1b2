//! Costs of a tick on a large node: 256 processors, 8 GPUs, 4 InfiniBand adapters, 64 disks, 64 jobs and 2000
//! mounts, built from the recorded machines.

use crate::{Agent, alone, program, until};
use std::collections::BTreeMap;
use std::fmt::Write as _;
use std::fs;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::time::Duration;

const CPUS: u32 = 256;
const NODES: u32 = 8;
const GPUS: u32 = 8;
const ADAPTERS: u32 = 4;
const DISKS: u32 = 64;
const JOBS: u32 = 64;
const MOUNTS: u32 = 2000;
/// Mounts with their own disk, for which the agent queries the usage.
const ON_DISKS: u32 = 40;
/// Number of measured ticks.
const TICKS: u64 = 5;
/// Maximum number of read calls per series and tick. It was 0.63 when the test was written. The files of a recorded
/// machine are opened at each tick and take two reads each: the content and the end of file.
const READS_MAX: f64 = 0.8;
/// Maximum number of bytes read per series and tick. It was 82 when the test was written. Two fifths were the list
/// of mounts, which two sources read.
const BYTES_MAX: f64 = 110.0;

/// The files of the node.
struct Node(PathBuf);

impl Node {
    fn write(dir: &Path) {
        let node = Self(dir.to_owned());
        for seed in ["slurm-v2", "bare-6.18", "cluster-node"] {
            copy(&hosts(&format!("{seed}/1/.")), dir);
        }
        for kind in ["thermal", "powercap"] {
            copy(&hosts(&format!("sensors-intel/1/sys/class/{kind}")), &dir.join("sys/class"));
        }
        node.processors();
        node.sensors();
        node.memory();
        node.mounts();
        node.disks();
        node.adapters();
        node.gpus();
        node.jobs();
    }

    fn put(&self, path: &str, text: impl AsRef<[u8]>) {
        let path = self.0.join(path);
        fs::create_dir_all(path.parent().unwrap()).unwrap();
        fs::write(path, text).unwrap();
    }

    fn get(&self, path: &str) -> String {
        fs::read_to_string(self.0.join(path)).unwrap()
    }

    fn processors(&self) {
        let mut stat = "cpu  24955 95983 16557 323985 2262 0 300 335 0 0\n".to_owned();
        let mut schedstat = "version 17\ntimestamp 4295234520\n".to_owned();
        let mut head = "      ".to_owned();
        for cpu in 0..CPUS {
            writeln!(stat, "cpu{cpu} 12347 45877 7994 165{cpu:03} 625 0 44 175 0 0").unwrap();
            writeln!(schedstat, "cpu{cpu} 0 0 0 0 0 0 85467{cpu:03}000 1204560000 91242").unwrap();
            write!(head, " {:>10}", format!("CPU{cpu}")).unwrap();
            let dir = format!("sys/devices/system/cpu/cpu{cpu}");
            for (file, khz) in [
                ("scaling_cur_freq", 2_100_000 + cpu),
                ("scaling_min_freq", 1_500_000),
                ("scaling_max_freq", 3_500_000),
                ("cpuinfo_min_freq", 1_500_000),
                ("cpuinfo_max_freq", 3_500_000),
            ] {
                self.put(&format!("{dir}/cpufreq/{file}"), format!("{khz}\n"));
            }
            self.put(&format!("{dir}/topology/physical_package_id"), format!("{}\n", cpu / 128));
            self.put(&format!("{dir}/topology/core_id"), format!("{}\n", cpu % 128));
            for kind in ["core", "package"] {
                self.put(&format!("{dir}/thermal_throttle/{kind}_throttle_count"), "3\n");
            }
        }
        stat.push_str(
            "intr 1\nctxt 5\nbtime 1767600000\nprocesses 9\nprocs_running 1\nprocs_blocked 0\n",
        );
        head.push('\n');
        for name in
            ["HI", "TIMER", "NET_TX", "NET_RX", "BLOCK", "IRQ_POLL", "TASKLET", "SCHED", "RCU"]
        {
            let counts: String = (0..CPUS).map(|cpu| format!(" {:>10}", 81_000 + cpu)).collect();
            writeln!(head, "{name:>12}:{counts}").unwrap();
        }
        self.put("proc/stat", stat);
        self.put("proc/schedstat", schedstat);
        self.put("proc/softirqs", head);
        for list in ["present", "online", "possible"] {
            self.put(&format!("sys/devices/system/cpu/{list}"), format!("0-{}\n", CPUS - 1));
        }
    }

    /// Both packages have temperature sensors for their cores.
    fn sensors(&self) {
        for package in 0..2 {
            let dir = format!("sys/class/hwmon/hwmon{package}");
            self.put(&format!("{dir}/name"), "coretemp\n");
            for core in 1..=64 {
                self.put(&format!("{dir}/temp{core}_input"), format!("{}\n", 40_000 + core));
                self.put(&format!("{dir}/temp{core}_label"), format!("Core {core}\n"));
            }
        }
    }

    fn memory(&self) {
        let dir = "sys/devices/system/node";
        let (meminfo, numastat) =
            (self.get(&format!("{dir}/node0/meminfo")), self.get(&format!("{dir}/node0/numastat")));
        for node in 0..NODES {
            let meminfo = meminfo.replace("Node 0 ", &format!("Node {node} "));
            self.put(&format!("{dir}/node{node}/meminfo"), meminfo);
            self.put(&format!("{dir}/node{node}/numastat"), &numastat);
        }
        self.put(&format!("{dir}/online"), format!("0-{}\n", NODES - 1));
    }

    fn mounts(&self) {
        let reply = self.get(".jobmeter/statfs/%2F");
        let mut mounts = "/dev/vda / ext4 rw,relatime 0 0\nproc /proc proc rw 0 0\n\
             cgroup2 /sys/fs/cgroup cgroup2 rw,nosuid 0 0\n"
            .to_owned();
        for disk in 0..ON_DISKS {
            writeln!(mounts, "/dev/mapper/vg-data{disk} /data{disk} xfs rw,relatime 0 0").unwrap();
            self.put(&format!(".jobmeter/statfs/%2Fdata{disk}"), &reply);
        }
        for other in ON_DISKS..MOUNTS - 3 {
            let line = match other % 4 {
                0 => {
                    format!("home{other}:/export /home/user{other} nfs4 rw,relatime,vers=4.2,hard")
                }
                1 => format!("auto.home /misc/place{other} autofs rw,relatime,fd=6,timeout=300"),
                2 => format!("overlay /var/lib/containers/{other}/merged overlay rw,relatime"),
                // A bind mount in a container shows the same disk again.
                _ => format!("/dev/vda /var/lib/containers/{other}/etc ext4 rw,relatime"),
            };
            writeln!(mounts, "{line} 0 0").unwrap();
        }
        assert_eq!(mounts.lines().count(), usize::try_from(MOUNTS).unwrap());
        for path in ["proc/self/mounts", "proc/mounts"] {
            fs::remove_file(self.0.join(path)).ok();
            self.put(path, &mounts);
        }
    }

    fn disks(&self) {
        let line = |disk| {
            format!(
                " 259 {disk} nvme{disk}n1 5{disk:03} 3 81920 41 7 1 900 5 0 40 46 0 0 0 0 0 0\n"
            )
        };
        self.put("proc/diskstats", (0..DISKS).map(line).collect::<String>());
    }

    fn adapters(&self) {
        let class = self.0.join("sys/class/infiniband");
        let model = self.0.join("model");
        fs::rename(class.join("mlx5_0"), &model).unwrap();
        fs::remove_dir_all(&class).unwrap();
        fs::create_dir(&class).unwrap();
        for adapter in 0..ADAPTERS {
            copy(&model.join("."), &class.join(format!("mlx5_{adapter}")));
        }
        fs::remove_dir_all(model).unwrap();
    }

    fn gpus(&self) {
        let recorded = fs::read_to_string(hosts("gpu-node/1/.jobmeter/nvml")).unwrap();
        let (_, first) = recorded.split_once('\n').unwrap();
        let (first, _) = first.split_once("process").unwrap();
        let mut all = String::new();
        for gpu in 0..GPUS {
            let first = first.replace("minor 0", &format!("minor {gpu}"));
            let uuid = format!("GPU-{gpu:08}-aaaa-bbbb-cccc-000000000000");
            write!(all, "gpu {gpu} {uuid} NVIDIA H200\n{first}").unwrap();
        }
        self.put(".jobmeter/nvml", all);
    }

    fn jobs(&self) {
        let scope = "sys/fs/cgroup/system.slice/slurmstepd.scope";
        let mut owners = self.get(".jobmeter/owners");
        for job in 1000..1000 + JOBS - 2 {
            let place = format!("{scope}/job_{job}");
            copy(&self.0.join(format!("{scope}/job_42/.")), &self.0.join(&place));
            writeln!(owners, "0 1767706200000000 {place}").unwrap();
        }
        self.put(".jobmeter/owners", owners);
    }
}

fn hosts(path: &str) -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("../../testdata/hosts").join(path)
}

fn copy(from: &Path, to: &Path) {
    fs::create_dir_all(to).unwrap();
    let copied = Command::new("cp").arg("-a").args([from, to]).status().unwrap();
    assert!(copied.success(), "{}", from.display());
}

/// Number of read calls and bytes so far. The kernel's counters exclude what the threads send.
fn read(agent: &Agent) -> (u64, u64) {
    let io = fs::read_to_string(agent.proc("io")).unwrap();
    let of = |name: &str| io.lines().find_map(|line| line.strip_prefix(name)).unwrap().parse();
    (of("syscr: ").unwrap(), of("rchar: ").unwrap())
}

/// Number of ticks of the load source.
fn ticks(agent: &Agent) -> u64 {
    let posts = agent.server.posts();
    let batches = posts.iter().flat_map(|post| &post.batches);
    let of_load = |index: &u32, batch: &model::Batch| {
        let entry = batch.table.entries.get(usize::try_from(*index).unwrap()).unwrap();
        *entry.metric.name == *"load_1m"
    };
    let found = batches.map(|batch| batch.index.iter().filter(|it| of_load(it, batch)).count());
    u64::try_from(found.sum::<usize>()).unwrap()
}

/// Number of series by metric.
fn series(agent: &Agent) -> BTreeMap<String, usize> {
    let mut of: BTreeMap<String, usize> = BTreeMap::new();
    let posts = agent.server.posts();
    let largest = posts
        .iter()
        .flat_map(|post| &post.batches)
        .max_by_key(|batch| batch.table.entries.len())
        .unwrap();
    for entry in &largest.table.entries {
        *of.entry(entry.metric.name.clone().into_owned()).or_default() += 1;
    }
    of
}

/// Processor time of the agent so far. The kernel reports it in units of 10 ms.
fn cpu(agent: &Agent) -> Duration {
    let stat = fs::read_to_string(agent.proc("stat")).unwrap();
    let (_, after_name) = stat.rsplit_once(')').unwrap();
    let fields = after_name.split_whitespace().skip(11).take(2);
    let hundredths: u64 = fields.map(|field| field.parse::<u64>().unwrap()).sum();
    Duration::from_millis(hundredths * 10)
}

#[test]
fn a_tick_of_a_large_node_reads_in_proportion_to_its_samples() {
    let _alone = alone();
    let dir = tempfile::tempdir().unwrap();
    Node::write(dir.path());
    let mut command = program();
    for spec in sources::SOURCES {
        command.env(format!("JOBMETER_SOURCES_{}_PERIOD", spec.name.to_uppercase()), "1s");
    }
    let root = dir.path().to_str().unwrap();
    let agent =
        Agent::start(command, &["--root", root, "--period", "1s", "--sources-agent-enabled=false"]);
    let settled = 3;
    until("some ticks", Duration::from_secs(60), || ticks(&agent) >= settled);
    let (begin, ran, (calls, bytes)) = (ticks(&agent), cpu(&agent), read(&agent));
    until("more ticks", Duration::from_secs(60), || ticks(&agent) >= begin + TICKS);
    let (count, ran_then) = (ticks(&agent) - begin, cpu(&agent));
    let (calls_then, bytes_then) = read(&agent);
    let reported = series(&agent);
    for (metric, count) in [
        ("cgroup_cpu_seconds_total", JOBS),
        ("disk_read_bytes_total", DISKS),
        ("filesystem_size_bytes", ON_DISKS + 1),
        ("infiniband_received_bytes_total", ADAPTERS),
        ("numa_hits_total", NODES),
        ("nvidia_power_watts", GPUS),
    ] {
        assert_eq!(
            reported.get(metric).copied(),
            usize::try_from(count).ok(),
            "{metric}: {reported:?}"
        );
    }
    let series: usize = reported.values().sum();
    let a_tick = |count_of: u64| count_of as f64 / count as f64;
    let (calls, bytes) = (a_tick(calls_then - calls), a_tick(bytes_then - bytes));
    let (calls_each, bytes_each) = (calls / series as f64, bytes / series as f64);
    println!(
        "{series} series: a tick has {calls:.0} reads, {calls_each:.2} a series, of {bytes:.0} bytes, \
         {bytes_each:.0} a series; {:.1} ms of processor time; RSS {} KiB",
        (ran_then - ran).as_secs_f64() * 1000.0 / count as f64,
        agent.kib("VmRSS")
    );
    assert!(calls_each <= READS_MAX, "{calls_each} reads a series");
    assert!(bytes_each <= BYTES_MAX, "{bytes_each} bytes a series");
}
