#!/usr/bin/env bash
# A whole Slurm on this machine, for tests: munge, a controller and several nodes, as root, without systemd.
#
#   slurm_up.sh up DIR      start what is not running; prints the line that exports SLURM_CONF
#   slurm_up.sh down DIR    stop everything, keep the state (jobs are still there after the next `up`)
#   slurm_up.sh wipe DIR    stop everything and remove the folder
#
# NODES, CPUS, MEMORY_MB and GPUS shape the nodes (GPUs are names only: counted and bound, never used).
# ACCOUNTING=yes adds slurmdbd on a MariaDB of its own. FORGET_S is how long the controller remembers a job after its end.
# Ports are free ones, chosen at the first `up`. Debian's packages are installed if they are missing; 77 is the exit code
# where they cannot be.
set -euo pipefail

action=${1:?up, down or wipe}
folder=${2:?a folder}
nodes=${NODES:-4} cpus=${CPUS:-8} memory_mb=${MEMORY_MB:-8000} gpus=${GPUS:-4}
accounting=${ACCOUNTING:-} forget_s=${FORGET_S:-3600}
last=$((nodes - 1))

running() { # PIDFILE
  [[ -s $1 ]] && kill -0 "$(<"$1")" 2>/dev/null
}

stop_all() { # SIGNAL
  local pidfile pid pids=()
  for pidfile in "$folder"/slurmd.*.pid "$folder"/{slurmctld,slurmdbd,munged,mariadbd}.pid; do
    running "$pidfile" && pids+=("$(<"$pidfile")")
    rm -f "$pidfile"
  done
  [[ ${#pids[@]} -eq 0 ]] || kill "-$1" "${pids[@]}" 2>/dev/null || true
  for pid in "${pids[@]}"; do
    for _ in {1..200}; do
      kill -0 "$pid" 2>/dev/null || break
      sleep 0.05
    done
  done
}

kill_steps() { # what runs below a node's daemon outlives it
  local place step group
  for place in /proc/[0-9]*; do
    [[ $(readlink "$place/cwd") == "$folder"/log* && $(<"$place/comm") == slurmstepd ]] || continue
    step=${place#/proc/}
    for group in $(pgrep -P "$step"); do
      kill -KILL -- "-$group" "$group" || true
    done
    kill -KILL "$step" || true
  done 2>/dev/null
}

install_missing() {
  local packages=(slurm-wlm munge) commands=(slurmctld munged) command
  [[ -z $accounting ]] || packages+=(slurmdbd mariadb-server) commands+=(slurmdbd mariadbd)
  for command in "${commands[@]}"; do
    command -v "$command" >/dev/null && continue
    { apt-get update -qq &&
      DEBIAN_FRONTEND=noninteractive apt-get install -y -qq --no-install-recommends "${packages[@]}" >/dev/null; } || exit 77
    return
  done
}

free_ports() { # COUNT; all are held until the last is known, so none is named twice
  python3 - "$1" <<'PYTHON'
import socket, sys
held = [socket.create_server(("127.0.0.1", 0)) for _ in range(int(sys.argv[1]))]
print(*(one.getsockname()[1] for one in held))
PYTHON
}

write_config() {
  local ports host number
  read -ra ports < <(free_ports $((nodes + 2)))
  host=$(hostname -s)
  cat >"$folder/slurm.conf" <<CONF
ClusterName=gymnast
SlurmctldHost=$host(127.0.0.1)
SlurmctldPort=${ports[0]}
SlurmUser=root
SlurmdUser=root
AuthType=auth/munge
AuthInfo=socket=$folder/munge.socket
CredType=cred/munge
StateSaveLocation=$folder/state
SlurmdSpoolDir=$folder/spool/%n
SlurmctldPidFile=$folder/slurmctld.pid
SlurmdPidFile=$folder/slurmd.%n.pid
SlurmctldLogFile=$folder/log/slurmctld.log
SlurmdLogFile=$folder/log/slurmd.%n.log
# No cgroups: they need rights that a container does not have.
ProctrackType=proctrack/linuxproc
TaskPlugin=task/none
JobAcctGatherType=jobacct_gather/none
JobCompType=jobcomp/filetxt
JobCompLoc=$folder/log/jobs.log
SelectType=select/cons_tres
SelectTypeParameters=CR_CPU_Memory
SchedulerType=sched/backfill
SchedulerParameters=sched_interval=2,batch_sched_delay=0,sched_min_interval=100000,bf_interval=2
PreemptType=preempt/partition_prio
PreemptMode=CANCEL
SwitchType=switch/none
MpiDefault=none
MailProg=/bin/true
ReturnToService=2
SlurmdParameters=config_overrides
JobRequeue=1
KillWait=10
MinJobAge=$forget_s
MaxArraySize=10001
SlurmctldTimeout=10
SlurmdTimeout=10
DefMemPerCPU=100
GresTypes=gpu
CONF
  if [[ -n $accounting ]]; then
    write_accounting "${ports[$((nodes + 1))]}"
  else
    echo AccountingStorageType=accounting_storage/none >>"$folder/slurm.conf"
  fi
  : >"$folder/gres.conf"
  for number in $(seq 0 "$last"); do
    echo "NodeName=n$number NodeHostname=$host NodeAddr=127.0.0.1 Port=${ports[$((number + 1))]}" \
      "CPUs=$cpus RealMemory=$memory_mb Gres=gpu:$gpus State=UNKNOWN" >>"$folder/slurm.conf"
  done
  for number in $(seq 0 $((gpus - 1))); do
    ln -sf /dev/null "$folder/gpu$number" # a device is asked for; which one does not matter
  done
  echo "Name=gpu File=$folder/gpu[0-$((gpus - 1))]" >>"$folder/gres.conf"
  cat >>"$folder/slurm.conf" <<CONF
PartitionName=cpu Nodes=ALL Default=YES MaxTime=INFINITE DefaultTime=01:00:00 State=UP
PartitionName=short Nodes=ALL MaxTime=00:10:00 DefaultTime=00:01:00 State=UP
PartitionName=urgent Nodes=ALL PriorityTier=10 DefaultTime=00:01:00 State=UP
CONF
}

write_accounting() { # PORT
  cat >>"$folder/slurm.conf" <<CONF
AccountingStorageType=accounting_storage/slurmdbd
AccountingStorageHost=localhost
AccountingStoragePort=$1
AccountingStoragePass=$folder/munge.socket
CONF
  (umask 077 && cat >"$folder/slurmdbd.conf") <<CONF
AuthType=auth/munge
AuthInfo=socket=$folder/munge.socket
DbdHost=localhost
DbdPort=$1
SlurmUser=root
LogFile=$folder/log/slurmdbd.log
PidFile=$folder/slurmdbd.pid
StorageType=accounting_storage/mysql
StorageHost=localhost
StorageUser=root
StorageLoc=slurm
CONF
}

start_accounting() {
  local socket=$folder/mariadb.socket
  [[ -d $folder/mariadb ]] || mariadb-install-db --no-defaults --user=root --datadir="$folder/mariadb" \
    --auth-root-authentication-method=socket --skip-test-db >"$folder/log/mariadb-install.log" 2>&1
  if ! running "$folder/mariadbd.pid"; then
    setsid mariadbd --no-defaults --user=root --datadir="$folder/mariadb" --skip-networking --socket="$socket" \
      --pid-file="$folder/mariadbd.pid" --innodb-buffer-pool-size=32M >"$folder/log/mariadbd.log" 2>&1 </dev/null &
    echo $! >"$folder/mariadbd.pid"
  fi
  until_it_answers mariadb-admin --no-defaults --socket="$socket" ping
  running "$folder/slurmdbd.pid" || MYSQL_UNIX_PORT=$socket slurmdbd
  until_it_answers sacctmgr --noheader list cluster
  sacctmgr --immediate add cluster gymnast >/dev/null || true # it is there already after the first time
}

until_it_answers() { # COMMAND...
  for _ in {1..300}; do
    "$@" >/dev/null 2>&1 && return
    sleep 0.1
  done
  echo "no answer: $*" >&2
  return 1
}

start_munge() {
  running "$folder/munged.pid" && return
  [[ -s $folder/munge.key ]] || (umask 077 && head -c 1024 /dev/urandom >"$folder/munge.key")
  munged --force --socket="$folder/munge.socket" --key-file="$folder/munge.key" --seed-file="$folder/munge.seed" \
    --pid-file="$folder/munged.pid" --log-file="$folder/log/munged.log"
}

start_slurm() {
  local number
  running "$folder/slurmctld.pid" || slurmctld -f "$SLURM_CONF"
  for number in $(seq 0 "$last"); do
    running "$folder/slurmd.n$number.pid" || slurmd -N "n$number" -f "$SLURM_CONF"
  done
  for _ in {1..300}; do
    [[ $(sinfo -h -N -p cpu -t idle,alloc,mix -o %N 2>/dev/null | sort -u | wc -l) -ge $nodes ]] && return
    sleep 0.1
  done
  echo "the nodes did not come up: see $folder/log" >&2
  sinfo -N -o '%N %T %E' >&2 || true
  return 1
}

case $action in
  up)
    install_missing
    mkdir -p "$folder"/{state,spool,log}
    folder=$(cd "$folder" && pwd)
    chmod 755 "$folder"
    export SLURM_CONF=$folder/slurm.conf
    [[ -s $SLURM_CONF ]] || write_config
    start_munge
    [[ ! -s $folder/slurmdbd.conf ]] || start_accounting
    start_slurm
    echo "export SLURM_CONF=$SLURM_CONF"
    ;;
  down) stop_all TERM ;;
  wipe)
    stop_all KILL
    kill_steps
    rm -rf "$folder"
    ;;
  *)
    echo "up, down or wipe, not $action" >&2
    exit 2
    ;;
esac
