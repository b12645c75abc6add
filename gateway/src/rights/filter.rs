//! Which system calls a thread may make, by filters of the kernel (seccomp).
//!
//! Three filters, of which the strictest answer counts: what no gateway does ends the process; what is not listed for the
//! process, or for the threads that carry packets, fails with `ENOSYS`, so that the C library falls back to an older call.
//! The lists have what the kernel answers without looking at arguments: it keeps those answers, and packets pay little.

use libc::c_long;
use seccompiler::SeccompAction;
use std::env::consts::ARCH;

/// Why there is no filter.
#[derive(Debug, thiserror::Error)]
pub enum FilterError {
    /// No lists for this processor.
    #[error("there is none for {ARCH}")]
    Architecture,
    /// The kernel refused, most likely because it was built without.
    #[error("{0}")]
    Kernel(#[from] seccompiler::Error),
}

/// Filters the calling thread and all threads that it starts. What was started before is not filtered.
pub fn filter_process() -> Result<(), FilterError> {
    let process = [calls::EVERYWHERE, calls::PACKETS, calls::CONTROL].concat();
    only(&process)?;
    apply(calls::NEVER, SeccompAction::Allow, SeccompAction::KillProcess)
}

/// Filters a thread like that, which may load programs of XDP too.
pub fn filter_ports() -> Result<(), FilterError> {
    only(&[calls::EVERYWHERE, calls::PACKETS, calls::CONTROL, calls::PORTS].concat())?;
    filter_devices()
}

/// Filters a thread that runs drivers of DPDK. What they call has no list: only what no gateway does ends the process.
pub fn filter_devices() -> Result<(), FilterError> {
    let never: Vec<c_long> =
        calls::NEVER.iter().copied().filter(|call| !calls::PORTS.contains(call)).collect();
    apply(&never, SeccompAction::Allow, SeccompAction::KillProcess)
}

/// Filters a process beside the daemon like that, in which what no gateway does fails instead of ending it: an operational command
/// of the HTTPS server may want to start a program.
///
/// The daemon is a process of the same user: what would end or slow it is refused too, such as signals.
#[cfg(any(target_arch = "x86_64", target_arch = "aarch64"))]
pub fn filter_server() -> Result<(), FilterError> {
    use libc::{SYS_fcntl, SYS_ioctl, SYS_prlimit64, SYS_tgkill};
    use seccompiler::SeccompCmpOp;
    // asm-generic/fcntl.h: F_SETOWN, F_SETSIG, F_SETOWN_EX; asm-generic/sockios.h: FIOSETOWN, SIOCSPGRP
    const OWNERS: [u32; 3] = [8, 10, 15];
    const OWNERS_BY_IOCTL: [u32; 2] = [0x8901, 0x8902];
    let all = [calls::EVERYWHERE, calls::PACKETS, calls::CONTROL].concat();
    let server = all.into_iter().filter(|call| !calls::NOT_OF_SERVER.contains(call));
    let mut rules: Rules = server.map(|call| (call, Vec::new())).collect();
    let own = std::process::id();
    rules.insert(SYS_tgkill, vec![argument(0, SeccompCmpOp::Eq, &[own])?]);
    rules.insert(
        SYS_prlimit64,
        vec![argument(0, SeccompCmpOp::Eq, &[0])?, argument(0, SeccompCmpOp::Eq, &[own])?],
    );
    // A descriptor that becomes ready may send any signal to its owner.
    rules.insert(SYS_fcntl, vec![argument(1, SeccompCmpOp::Ne, &OWNERS)?]);
    rules.insert(SYS_ioctl, vec![argument(1, SeccompCmpOp::Ne, &OWNERS_BY_IOCTL)?]);
    install(rules, SeccompAction::Errno(libc::ENOSYS as u32), SeccompAction::Allow)
}

/// Filters a process that becomes a DHCP client, a program of the system. Its calls have no list: what an attacker would call
/// fails, and so do sockets other than those of packets and IPv4. It could otherwise ask the daemon by its Unix socket.
#[cfg(any(target_arch = "x86_64", target_arch = "aarch64"))]
pub fn filter_dhcp_client() -> Result<(), FilterError> {
    use libc::{
        AF_INET, AF_PACKET, SYS_io_uring_setup, SYS_kill, SYS_pidfd_getfd, SYS_pidfd_send_signal, SYS_socket,
    };
    use seccompiler::SeccompCmpOp;
    let never = calls::NEVER.iter().filter(|call| !calls::OF_PROGRAMS.contains(call));
    let more = [SYS_io_uring_setup, SYS_kill, SYS_pidfd_getfd, SYS_pidfd_send_signal];
    let mut rules: Rules = never.copied().chain(more).map(|call| (call, Vec::new())).collect();
    rules.insert(SYS_socket, vec![argument(0, SeccompCmpOp::Ne, &[AF_INET as u32, AF_PACKET as u32])?]);
    // asm/unistd.h: the same calls with pointers of 32 bits have this bit.
    #[cfg(target_arch = "x86_64")]
    let with_bit: Rules = rules.keys().map(|call| (call | 0x4000_0000, Vec::new())).collect();
    #[cfg(target_arch = "x86_64")]
    rules.extend(with_bit);
    install(rules, SeccompAction::Allow, SeccompAction::Errno(libc::EPERM as u32))
}

/// There is no filter for this processor.
#[cfg(not(any(target_arch = "x86_64", target_arch = "aarch64")))]
pub fn filter_dhcp_client() -> Result<(), FilterError> {
    Err(FilterError::Architecture)
}

/// There is no filter for this processor.
#[cfg(not(any(target_arch = "x86_64", target_arch = "aarch64")))]
pub fn filter_server() -> Result<(), FilterError> {
    Err(FilterError::Architecture)
}

/// The rule that an argument of a call compares so with each of some values.
#[cfg(any(target_arch = "x86_64", target_arch = "aarch64"))]
fn argument(
    index: u8,
    compares: seccompiler::SeccompCmpOp,
    values: &[u32],
) -> Result<seccompiler::SeccompRule, FilterError> {
    use seccompiler::{SeccompCmpArgLen, SeccompCondition, SeccompRule};
    let condition = |value: &u32| {
        SeccompCondition::new(index, SeccompCmpArgLen::Dword, compares.clone(), u64::from(*value))
    };
    let conditions = values.iter().map(condition).collect::<Result<Vec<_>, _>>();
    let rule = conditions.and_then(SeccompRule::new);
    Ok(rule.map_err(seccompiler::Error::from)?)
}

/// Filters the calling thread, which carries packets between descriptors that are open.
pub fn filter_packets() -> Result<(), FilterError> {
    only(&[calls::EVERYWHERE, calls::PACKETS].concat())
}

/// Allows these, and no others but those that end the process, which another filter has.
fn only(allowed: &[c_long]) -> Result<(), FilterError> {
    let allowed = [allowed, calls::NEVER].concat();
    apply(&allowed, SeccompAction::Errno(libc::ENOSYS as u32), SeccompAction::Allow)
}

#[cfg(any(target_arch = "x86_64", target_arch = "aarch64"))]
fn apply(listed: &[c_long], others: SeccompAction, these: SeccompAction) -> Result<(), FilterError> {
    install(listed.iter().map(|&call| (call, Vec::new())).collect(), others, these)
}

/// For each call the rules of which one must hold; none for a call that is listed whatever its arguments are.
#[cfg(any(target_arch = "x86_64", target_arch = "aarch64"))]
type Rules = std::collections::BTreeMap<c_long, Vec<seccompiler::SeccompRule>>;

#[cfg(any(target_arch = "x86_64", target_arch = "aarch64"))]
fn install(rules: Rules, others: SeccompAction, these: SeccompAction) -> Result<(), FilterError> {
    use seccompiler::{BpfProgram, SeccompFilter, TargetArch, apply_filter};
    let target = TargetArch::try_from(ARCH).map_err(|_| FilterError::Architecture)?;
    let program = SeccompFilter::new(rules, others, these, target).and_then(BpfProgram::try_from);
    Ok(apply_filter(&program.map_err(seccompiler::Error::from)?)?)
}

#[cfg(not(any(target_arch = "x86_64", target_arch = "aarch64")))]
fn apply(_: &[c_long], _: SeccompAction, _: SeccompAction) -> Result<(), FilterError> {
    Err(FilterError::Architecture)
}

/// No numbers: nothing is filtered.
#[cfg(not(any(target_arch = "x86_64", target_arch = "aarch64")))]
mod calls {
    pub const EVERYWHERE: &[libc::c_long] = &[];
    pub const PACKETS: &[libc::c_long] = &[];
    pub const CONTROL: &[libc::c_long] = &[];
    pub const NEVER: &[libc::c_long] = &[];
    pub const PORTS: &[libc::c_long] = &[];
}

/// System calls by their numbers.
#[cfg(any(target_arch = "x86_64", target_arch = "aarch64"))]
#[rustfmt::skip]
mod calls {
    #![allow(clippy::wildcard_imports, reason = "they are numbers, each named SYS_")]
    use libc::*;

    /// Memory, time, other threads, the end.
    pub const EVERYWHERE: &[c_long] = &[
        SYS_brk, SYS_mmap, SYS_mprotect, SYS_mremap, SYS_munmap, SYS_madvise, SYS_mlock, SYS_munlock,
        SYS_clock_gettime, SYS_clock_getres, SYS_clock_nanosleep, SYS_nanosleep, SYS_gettimeofday,
        SYS_futex, SYS_sched_yield, SYS_sched_getaffinity, SYS_membarrier, SYS_rseq, SYS_set_robust_list, SYS_getcpu,
        SYS_gettid, SYS_getpid, SYS_tgkill, SYS_rt_sigaction, SYS_rt_sigprocmask, SYS_rt_sigreturn, SYS_sigaltstack,
        SYS_restart_syscall, SYS_exit, SYS_exit_group, SYS_getrandom,
    ];

    /// What descriptors that are open are used with, by workers and what they call: TUN, sockets, bells, capture files, the
    /// log, crypto devices. A device's guard is a thread.
    pub const PACKETS: &[c_long] = &[
        SYS_read, SYS_readv, SYS_write, SYS_writev, SYS_lseek, SYS_ioctl, SYS_close, SYS_fcntl,
        SYS_ppoll,
        SYS_sendto, SYS_recvfrom, SYS_sendmsg, SYS_recvmsg, SYS_sendmmsg, SYS_recvmmsg, SYS_getsockopt, SYS_setsockopt,
        SYS_getsockname, SYS_accept4, SYS_accept, SYS_shutdown, SYS_epoll_ctl, SYS_epoll_pwait,
        SYS_clone, SYS_clone3, SYS_prctl,
        #[cfg(target_arch = "x86_64")] SYS_poll,
    ];

    /// What the rest of the daemon needs too: sockets, Unix sockets in folders, files that are read again, libraries,
    /// rights that are given up, processors of lcores, timers and signals of tokio, the follower's namespaces.
    pub const CONTROL: &[c_long] = &[
        SYS_socket, SYS_socketpair, SYS_bind, SYS_listen, SYS_connect, SYS_getpeername,
        SYS_openat, SYS_openat2, SYS_pread64, SYS_pwrite64, SYS_preadv, SYS_pwritev, SYS_sendfile, SYS_fsync, SYS_fdatasync,
        SYS_ftruncate, SYS_flock, SYS_dup, SYS_dup3, SYS_pipe2, SYS_eventfd2, SYS_memfd_create,
        SYS_newfstatat, SYS_fstat, SYS_statx, SYS_statfs, SYS_fstatfs, SYS_faccessat, SYS_faccessat2, SYS_readlinkat,
        SYS_getdents64, SYS_getcwd, SYS_mkdirat, SYS_unlinkat, SYS_renameat2, SYS_fchmod, SYS_fchmodat,
        SYS_fchown, SYS_umask, SYS_inotify_init1, SYS_inotify_add_watch, SYS_inotify_rm_watch,
        SYS_epoll_create1, SYS_pselect6, SYS_timerfd_create, SYS_timerfd_settime,
        SYS_signalfd4, SYS_rt_sigpending, SYS_rt_sigtimedwait, SYS_kill,
        SYS_capget, SYS_capset, SYS_seccomp, SYS_setns, SYS_getpriority, SYS_setpriority, SYS_sched_getparam,
        SYS_sched_setaffinity,
        SYS_adjtimex, SYS_clock_adjtime,
        SYS_sched_getscheduler, SYS_getrusage, SYS_prlimit64, SYS_sysinfo, SYS_uname,
        SYS_getuid, SYS_geteuid, SYS_getgid, SYS_getegid, SYS_getresuid, SYS_getresgid, SYS_getppid, SYS_set_tid_address,
        SYS_mlockall, SYS_munlockall, SYS_mincore, SYS_get_mempolicy,
        #[cfg(target_arch = "x86_64")] SYS_open,
        SYS_renameat,
        #[cfg(target_arch = "x86_64")] SYS_getrlimit,
        #[cfg(target_arch = "x86_64")] SYS_setrlimit,
        #[cfg(target_arch = "x86_64")] SYS_stat,
        #[cfg(target_arch = "x86_64")] SYS_lstat,
        #[cfg(target_arch = "x86_64")] SYS_access,
        #[cfg(target_arch = "x86_64")] SYS_readlink,
        #[cfg(target_arch = "x86_64")] SYS_mkdir,
        #[cfg(target_arch = "x86_64")] SYS_unlink,
        #[cfg(target_arch = "x86_64")] SYS_rename,
        #[cfg(target_arch = "x86_64")] SYS_chmod,
        #[cfg(target_arch = "x86_64")] SYS_pipe,
        #[cfg(target_arch = "x86_64")] SYS_dup2,
        #[cfg(target_arch = "x86_64")] SYS_select,
        #[cfg(target_arch = "x86_64")] SYS_epoll_wait,
        #[cfg(target_arch = "x86_64")] SYS_getdents,
        #[cfg(target_arch = "x86_64")] SYS_arch_prctl,
        #[cfg(target_arch = "x86_64")] SYS_time,
    ];

    /// What opens a port of AF_XDP.
    pub const PORTS: &[c_long] = &[SYS_bpf];

    /// What the HTTPS server needs not, of the calls of the daemon: it could end the daemon, slow it, or leave its namespace.
    pub const NOT_OF_SERVER: &[c_long] = &[
        SYS_kill, SYS_setpriority, SYS_sched_setaffinity, SYS_setns, SYS_seccomp, SYS_listen, SYS_mlockall,
        SYS_adjtimex, SYS_clock_adjtime,
    ];

    /// What a program of the system may do of that: start another one, and give up users that it has not.
    pub const OF_PROGRAMS: &[c_long] = &[
        SYS_execve, SYS_execveat, SYS_setuid, SYS_setgid, SYS_setreuid, SYS_setregid, SYS_setresuid, SYS_setresgid,
        SYS_setgroups, SYS_setfsuid, SYS_setfsgid,
    ];

    /// What no gateway does, and an attacker would: other programs, other processes, the kernel's modules and mounts, other
    /// users.
    pub const NEVER: &[c_long] = &[
        SYS_execve, SYS_execveat, SYS_ptrace, SYS_process_vm_readv, SYS_process_vm_writev, SYS_kexec_load,
        SYS_init_module, SYS_finit_module, SYS_delete_module, SYS_mount, SYS_umount2, SYS_pivot_root, SYS_chroot,
        SYS_setuid, SYS_setgid, SYS_setreuid, SYS_setregid, SYS_setresuid, SYS_setresgid, SYS_setgroups, SYS_setfsuid,
        SYS_setfsgid, SYS_bpf, SYS_perf_event_open, SYS_userfaultfd, SYS_keyctl, SYS_add_key, SYS_request_key,
        SYS_unshare, SYS_reboot, SYS_swapon, SYS_swapoff,
    ];
}

#[cfg(test)]
mod tests {
    use super::*;
    use rustix::io::Errno;
    use std::os::unix::process::ExitStatusExt;
    use std::process::Command;

    /// Told to this program when it is started to break a rule.
    const BREAKS: &str = "POSTERN_TEST_BREAKS_THE_FILTER";

    fn in_a_thread<T: Send + 'static>(function: impl FnOnce() -> T + Send + 'static) -> T {
        std::thread::spawn(function).join().expect("it does not panic")
    }

    #[test]
    fn what_is_not_listed_fails_and_what_is_works() {
        let (named, opened) = in_a_thread(|| {
            filter_process().expect("this kernel filters");
            (rustix::system::sethostname(b"other").err(), std::fs::read("/proc/self/status").is_ok())
        });
        assert_eq!((named, opened), (Some(Errno::NOSYS), true));
    }

    #[test]
    fn the_https_server_starts_no_program_and_goes_on() {
        let error = in_a_thread(|| {
            filter_server().expect("this kernel filters");
            std::os::unix::process::CommandExt::exec(&mut Command::new("/bin/true")).raw_os_error()
        });
        assert_eq!(error, Some(libc::ENOSYS));
    }

    #[test]
    fn the_https_server_neither_signals_nor_limits_another_process() {
        use rustix::process::{Pid, Resource, Signal, getrlimit, kill_process, prlimit};
        let mut other = Command::new("/bin/sleep").arg("60").spawn().expect("it starts");
        let id = Pid::from_child(&other);
        let (killed, limited, socket, itself) = in_a_thread(move || {
            filter_server().expect("this kernel filters");
            let limit = getrlimit(Resource::Nofile);
            let udp = std::net::UdpSocket::bind("127.0.0.1:0").expect("it may");
            (
                kill_process(id, Signal::KILL).err(),
                prlimit(Some(id), Resource::Nofile, limit).err(),
                rustix::io::ioctl_fionbio(&udp, true).err(),
                rustix::process::setrlimit(Resource::Nofile, getrlimit(Resource::Nofile)).err(),
            )
        });
        assert_eq!((killed, limited), (Some(Errno::NOSYS), Some(Errno::NOSYS)));
        assert_eq!((socket, itself), (None, None), "what is its own it may change");
        assert!(other.try_wait().expect("it is ours").is_none(), "it runs on");
        other.kill().expect("it is ours");
        other.wait().expect("it ends");
    }

    #[test]
    fn who_carries_packets_opens_nothing() {
        let mut read = [0; 3];
        let (opened, made, read) = in_a_thread(move || {
            let open = std::fs::File::open("/proc/self/status").expect("it is there");
            filter_process().expect("this kernel filters");
            filter_packets().expect("one more");
            let opened =
                std::fs::File::open("/proc/self/status").err().and_then(|error| error.raw_os_error());
            let made = std::net::UdpSocket::bind("127.0.0.1:0").err().and_then(|error| error.raw_os_error());
            std::io::Read::read_exact(&mut &open, &mut read).expect("it may use what is open");
            (opened, made, read)
        });
        assert_eq!((opened, made), (Some(libc::ENOSYS), Some(libc::ENOSYS)));
        assert_eq!(&read, b"Nam");
    }

    #[test]
    fn whatever_starts_another_program_is_killed() {
        if std::env::var_os(BREAKS).is_some() {
            filter_process().expect("this kernel filters");
            filter_packets().expect("one more");
            let error = std::os::unix::process::CommandExt::exec(&mut Command::new("/bin/true"));
            unreachable!("it was not killed: {error}");
        }
        let test = std::thread::current().name().expect("tests have names").to_owned();
        let myself = std::env::current_exe().expect("it is there");
        let ended =
            Command::new(myself).args(["--exact", &test]).env(BREAKS, "1").output().expect("it starts");
        assert_eq!(ended.status.signal(), Some(libc::SIGSYS), "{ended:?}");
    }
}
