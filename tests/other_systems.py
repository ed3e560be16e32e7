"""What Windows lacks of Python's standard library: for tests of what runs there."""

# Modules that are only on Unix.
MODULES = """
    curses fcntl grp nis posix pty pwd readline resource spwd syslog termios tty
""".split()

# Module -> its attributes that are not on Windows, `sched_` ones not on macOS either.
ATTRIBUTES = {
    "os": """
        O_CLOEXEC O_DIRECTORY O_NOFOLLOW O_NONBLOCK WIFEXITED WIFSIGNALED
        WNOHANG chown chroot confstr ctermid fchdir fchmod fchown fork forkpty
        fpathconf fstatvfs getegid geteuid getgid getgroups getloadavg getpgid
        getpgrp getpriority getresuid getsid getuid initgroups killpg lchown
        lockf mkfifo mknod nice openpty pathconf pipe2 posix_fadvise
        posix_fallocate posix_spawn pread preadv pwrite pwritev
        register_at_fork sched_getaffinity sched_getparam sched_setaffinity
        sched_yield sendfile setegid seteuid setgid setpgid setpriority setsid
        setuid statvfs sync sysconf tcgetpgrp tcsetpgrp ttyname uname wait
        wait3 wait4 waitid
    """.split(),
    "signal": """
        ITIMER_REAL SIGALRM SIGBUS SIGCHLD SIGCONT SIGHUP SIGKILL SIGPIPE
        SIGQUIT SIGSTOP SIGTSTP SIGTTIN SIGTTOU SIGUSR1 SIGUSR2 SIGWINCH
        SIGXCPU SIG_BLOCK SIG_SETMASK SIG_UNBLOCK alarm getitimer pause
        pthread_kill pthread_sigmask setitimer siginterrupt sigpending
        sigtimedwait sigwait
    """.split(),
    "socket": "AF_UNIX SO_REUSEPORT recv_fds send_fds".split(),
    "time": "CLOCK_BOOTTIME CLOCK_MONOTONIC clock_gettime".split(),
}
