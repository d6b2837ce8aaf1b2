# A Slurm job in cgroup version 2, one that a user fakes, and the agent's samples of both.
cg=/sys/fs/cgroup
for c in cpu memory io pids; do echo "+$c" > $cg/cgroup.subtree_control; done
scope=$cg/system.slice/slurmstepd.scope
mkdir -p $scope
for dir in $cg/system.slice $scope; do for c in cpu memory io pids; do echo "+$c" > $dir/cgroup.subtree_control; done; done
mkdir $scope/job_7
for c in cpu memory io pids; do echo "+$c" > $scope/job_7/cgroup.subtree_control; done
mkdir $scope/job_7/step_0
echo "30000 100000" > $scope/job_7/cpu.max
echo 268435456 > $scope/job_7/memory.max
# A directory of the same name that a user owns, outside root's directories.
mkdir -p $cg/user.slice/user-1000.slice/system.slice/slurmstepd.scope/job_8
chown -R 1000 $cg/user.slice/user-1000.slice/system.slice
# The job: a load, then a process that sleeps while the agent reads.
sh -c "echo \$\$ > $scope/job_7/step_0/cgroup.procs; dd if=/dev/zero of=/tmp/f bs=1M count=8 2>/dev/null; i=0; while [ \$i -lt 60000 ]; do i=\$((i+1)); done; sleep 60" &
sleep 1
while :; do
    before=$(grep usage_usec $scope/job_7/cpu.stat); sleep 1
    [ "$before" = "$(grep usage_usec $scope/job_7/cpu.stat)" ] && break
done
jobmeter-agent --once --print --spool none --device nested
code=$?
for key in usage_usec throttled_usec; do echo "KERNEL $key $(grep "^$key" $scope/job_7/cpu.stat | cut -d' ' -f2)"; done
[ -f $scope/job_7/memory.peak ] && echo "KERNEL memory.peak $(cat $scope/job_7/memory.peak)"
exit $code
