"""What a hostile program tries, as programs. Each prints CONTAINED when the wall held and ESCAPED when it did not."""

from __future__ import annotations

HEAD = """
import ctypes, errno, os, socket, sys
libc = ctypes.CDLL(None, use_errno=True)
def refused(what, attempt, *also):
    try:
        got = attempt()
    except (OSError, ValueError, *also) as error:
        return print(what, "refused", type(error).__name__)
    print("ESCAPED", what, got); sys.exit(9)
def refused_call(what, *arguments):
    ctypes.set_errno(0)
    got = libc.syscall(*arguments)
    number = ctypes.get_errno()
    # these numbers only come from a check of privileges or of the filter
    if got == -1 and number in (errno.EPERM, errno.ENOSYS, errno.EACCES):
        return print(what, "refused", errno.errorcode[number])
    print("ESCAPED", what, got, number); sys.exit(9)
"""
TAIL = "\nprint('CONTAINED')\n"

PROGRAMS = {
    "the internet": "refused('tcp', lambda: socket.create_connection(('192.0.2.1', 80), 2))",
    "an address of the name service": "refused('dns', lambda: socket.getaddrinfo('example.com', 80))",
    "a name server by hand": """
with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as probe:
    refused('udp', lambda: probe.sendto(b'x', ('192.0.2.53', 53)))
""",
    "the hypervisor's socket": "refused('vsock', lambda: socket.socket(40, socket.SOCK_STREAM))",
    "raw, packet and netlink sockets": """
refused('raw', lambda: socket.socket(socket.AF_INET, socket.SOCK_RAW, 1))
refused('packet', lambda: socket.socket(17, socket.SOCK_RAW))
refused('netlink', lambda: socket.socket(16, socket.SOCK_RAW))
refused('crypto', lambda: socket.socket(38, socket.SOCK_SEQPACKET))
""",
    "password files and homes": """
keys = [os.path.join('/root', name) for name in ('.ssh', '.bashrc')]
for path in [*'/etc/shadow /etc/passwd /etc/hostname /home /var /run /sys /opt'.split(), *keys]:
    refused(path, lambda: os.listdir(path) if os.path.isdir(path) else open(path).read())
""",
    "what the host mounted": """
for name in os.listdir('/'):
    assert name in 'bin dev etc lib lib32 lib64 proc root sbin tmp usr home opt srv'.split(), name
for top in ('/root', '/home', '/opt', '/srv'):
    for folder, _, files in os.walk(top):
        inside = folder.startswith((sys.base_prefix, sys.prefix)) or sys.base_prefix.startswith(folder)
        assert inside, (folder, files)
""",
    "other processes": """
assert os.getpid() < 10, os.getpid()
assert sorted(name for name in os.listdir('/proc') if name.isdigit()) == ['1', str(os.getpid())]
for name in ('environ', 'mem', 'maps', 'auxv', 'stack', 'syscall'):
    refused(name, lambda: open(f'/proc/1/{name}', 'rb').read(1) or 1 / 0)
for name in ('root', 'cwd', 'exe', 'fd/3', 'ns/mnt'):
    refused(name, lambda: os.readlink(f'/proc/1/{name}'))
refused('fds', lambda: os.listdir('/proc/1/fd'))
""",
    "a handle on the first process": """
import signal
handle = os.pidfd_open(1)
for number in (signal.SIGKILL, signal.SIGSTOP, signal.SIGTERM): signal.pidfd_send_signal(handle, number)
refused('files', lambda: os.listdir('/proc/1/task/1/fd'))
""",
    "more than its share of the processor": """
refused('real time', lambda: os.sched_setscheduler(0, os.SCHED_FIFO, os.sched_param(50)))
refused('round robin', lambda: os.sched_setscheduler(0, os.SCHED_RR, os.sched_param(1)))
refused('of process 1', lambda: os.sched_setaffinity(1, {0}))
refused('of all', lambda: os.setpriority(os.PRIO_USER, 0, 19))
os.sched_setaffinity(0, os.sched_getaffinity(0)); os.setpriority(os.PRIO_PROCESS, 0, 19)
""",
    "a debugger": """
refused_call('attach', 101 if os.uname().machine == 'x86_64' else 117, 16, 1, 0, 0)
refused_call('seize', 101 if os.uname().machine == 'x86_64' else 117, 0x4206, 1, 0, 0)
refused_call('read memory', 310 if os.uname().machine == 'x86_64' else 270, 1, 0, 0, 0, 0, 0)
refused_call('take a file', 438, 3, 1, 0)
""",
    "mounts": """
for what, arguments in {
    'mount': (165, b'none', b'/tmp', b'tmpfs', 0, None), 'umount': (166, b'/tmp', 2), 'chroot': (161, b'/tmp'),
    'pivot_root': (155, b'/tmp', b'/tmp'), 'fsopen': (430, b'tmpfs', 0), 'open_tree': (428, -100, b'/', 1),
    'mount_setattr': (442, -100, b'/', 0, None, 0),
}.items(): refused_call(what, *arguments)
""",
    "new namespaces": """
refused_call('unshare user', 272, 0x10000000)
refused_call('unshare mount', 272, 0x00020000)
refused_call('setns', 308, 0, 0)
refused_call('clone user', 56, 0x10000000 | 17, None, None, None, None)
refused_call('clone pid', 56, 0x20000000 | 17, None, None, None, None)
refused_call('clone3', 435, None, 0)
""",
    "the kernel's rare parts": """
for what, number in dict(bpf=321, perf_event_open=298, keyctl=250, add_key=248, request_key=249, userfaultfd=323,
    io_uring_setup=425, io_uring_enter=426, kexec_load=246, init_module=175, finit_module=313, delete_module=176,
    reboot=169, swapon=167, acct=163, quotactl=179, personality=135, syslog=103, fanotify_init=300,
    open_by_handle_at=304, name_to_handle_at=303, iopl=172, ioperm=173, kcmp=312, lookup_dcookie=212, move_pages=279,
    unknown=463, also_unknown=9999).items():
    refused_call(what, number, 0, 0, 0, 0, 0)
""",
    "memory that nobody counts": """
refused_call('memfd_create', 319, b'x', 0)
refused_call('shmget', 29, 0, 1 << 20, 0o1600)
refused_call('semget', 64, 0, 1, 0o1600)
refused_call('msgget', 68, 0, 0o1600)
refused_call('mq_open', 240, b'x', 0o102, 0o600, None)
refused_call('io_setup', 206, 1000, (ctypes.c_ulong * 1)())
""",
    "the clock and the host's name": """
import time
refused('clock', lambda: time.clock_settime(time.CLOCK_REALTIME, 0))
refused('host name', lambda: socket.sethostname('owned'))
assert socket.gethostname() == 'sandbox'
""",
    "read-only places": """
for path in ('/x', '/usr/x', '/usr/bin/python3', '/etc/x', '/dev/x', '/proc/sys/kernel/core_pattern',
    '/proc/sys/kernel/hostname', '/proc/sysrq-trigger', sys.executable, os.__file__, '/proc/1/oom_score_adj',
    '/proc/self/uid_map'):
    refused(path, lambda: open(path, 'wb', 0).write(b'x'))
""",
    "kernel parameters that the next program could read": """
for folder, _, files in os.walk('/proc'):
    for name in files:
        path = os.path.join(folder, name)
        refused(path, lambda: os.open(path, os.O_WRONLY | os.O_NONBLOCK))
    if folder.count('/') > 5: break
""",
    "the kernel's choice of what to kill": """
for path in ('/proc/self/oom_score_adj', '/proc/thread-self/oom_score_adj', '/proc/1/oom_score_adj'):
    refused(path, lambda: open(path, 'w').write('0'))
assert open('/proc/self/oom_score_adj').read() == '1000\\n'
""",
    "terminals of others": """
held = []
try:
    while len(held) < 100: held.append(os.openpty())
except OSError:
    pass
assert len(held) == 16, held
assert sorted(os.listdir('/dev/pts')) == sorted([*map(str, range(16)), 'ptmx'])
""",
    "pairs of sockets of other kinds": """
number = 53 if os.uname().machine == 'x86_64' else 199
for family in range(2, 46):
    for kind in range(1, 6):
        assert libc.syscall(number, family, kind, 0, (ctypes.c_int * 2)()) == -1
        assert ctypes.get_errno() == errno.EAFNOSUPPORT, (family, kind, ctypes.get_errno())
socket.socketpair()
""",
    "signals from timers and files": """
import fcntl
ctypes.set_errno(0)
number = 222 if os.uname().machine == 'x86_64' else 107
assert libc.syscall(number, 1, None, ctypes.byref(ctypes.c_int())) == -1 and ctypes.get_errno() == errno.ENOSYS
refused('F_SETSIG', lambda: fcntl.fcntl(0, 10, 18))
""",
    "another user": """
assert os.getresuid() == (65534,) * 3 and os.getresgid() == (65534,) * 3 and set(os.getgroups()) <= {65534}
refused('uid', lambda: os.setuid(0)); refused('gid', lambda: os.setgid(0)); refused('groups', lambda: os.setgroups([0]))
held = dict(line.split(':', 1) for line in open('/proc/self/status').read().splitlines())
assert all(int(held[name], 16) == 0 for name in ('CapInh', 'CapPrm', 'CapEff', 'CapBnd', 'CapAmb')), held
assert held['NoNewPrivs'].strip() == '1' and held['Seccomp'].strip() == '2', held
""",
    "setuid programs": """
import shutil, stat, subprocess
shutil.copy('/usr/bin/id', 'mine'); os.chmod('mine', 0o6755)
assert subprocess.check_output(['./mine', '-u']).strip() == b'65534'
for folder in ('/usr/bin', '/usr/sbin', '/usr/lib/openssh'):
    for entry in os.scandir(folder) if os.path.isdir(folder) else ():
        if entry.is_file() and entry.stat().st_mode & stat.S_ISUID and entry.name in ('mount', 'su', 'umount'):
            done = subprocess.run([entry.path, '-t', 'tmpfs', 'none', '/tmp'], stdin=0, capture_output=True)
            assert done.returncode, (entry.path, done)
""",
    "its own limits": """
import resource
for name in 'AS CPU NPROC FSIZE NOFILE CORE'.split():
    which = getattr(resource, 'RLIMIT_' + name)
    hard = resource.getrlimit(which)[1]
    assert hard != resource.RLIM_INFINITY
    refused(which, lambda: resource.setrlimit(which, (hard + 1, hard + 1)))
refused('of another', lambda: resource.prlimit(1, resource.RLIMIT_CPU, (1, 1)))
refused('priority', lambda: os.setpriority(os.PRIO_PROCESS, 0, -5))
""",
    "files it was not given": """
assert sorted(os.listdir('/proc/self/fd'))[:3] == ['0', '1', '2'] and len(os.listdir('/proc/self/fd')) == 4
for fd in range(3, 1100):
    refused(fd, lambda: os.write(fd, b'{"status": 0}')) if fd < 10 or fd > 400 else None
refused('up', lambda: os.listdir('/proc/self/fd/0/..'))
assert not os.path.exists('/proc/self/root/work') and not os.path.exists('../../../../work')
""",
    "device files": """
import stat
refused('disk', lambda: os.mknod('disk', 0o600 | stat.S_IFBLK, os.makedev(254, 0)))
refused('memory', lambda: os.mknod('mem', 0o600 | stat.S_IFCHR, os.makedev(1, 1)))
for path in ('/dev/mem', '/dev/kmsg', '/dev/kvm', '/dev/fuse', '/dev/sda', '/dev/vda', '/dev/nvidia0', '/dev/net/tun'):
    refused(path, lambda: open(path, 'rb'))
""",
    "typing into terminals": """
import fcntl
master, slave = os.openpty()
refused('TIOCSTI', lambda: fcntl.ioctl(slave, 0x5412, b'x'))
refused('tty', lambda: open('/dev/tty'))
""",
    "a jail inside the jail": """
import subprocess
for command in ('unshare -Ur true', 'unshare -m true', 'bwrap --ro-bind / / true', 'nsenter -t 1 -a true'):
    try:
        done = subprocess.run(command.split(), capture_output=True)
    except FileNotFoundError:
        continue
    assert done.returncode != 0, command
""",
    "our code and its tests": """
refused('gymnast', lambda: __import__('gymnast'), ImportError)
import gc
assert not [name for name in sys.modules if 'gymnast' in name]
for folder, folders, files in os.walk('/'):
    if folder.startswith(('/proc', '/usr/share', '/usr/lib/x86')): folders.clear(); continue
    assert 'gymnast' not in folder, folder
    assert not any('gymnast' in name or name == 'verifier_cases.jsonl' for name in files), folder
""",
}
"""Programs that catch their own failure: each must print CONTAINED and exit with 0."""

X86_ONLY = {
    "mounts",
    "new namespaces",
    "the kernel's rare parts",
    "memory that nobody counts",
}
