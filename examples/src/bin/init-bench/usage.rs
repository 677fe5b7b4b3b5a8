//! What the operating system says this process has used.

/// CPU time and page faults since the process started.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Usage {
    pub(crate) cpu_s: f64,
    pub(crate) minor_faults: i64,
    pub(crate) major_faults: i64,
}

impl Usage {
    pub(crate) fn now() -> Self {
        // SAFETY: an rusage is plain numbers, for which zero is a value.
        let mut usage: libc::rusage = unsafe { std::mem::zeroed() };
        // SAFETY: the pointer is to an rusage that this function owns; the call writes nothing else.
        let code = unsafe { libc::getrusage(libc::RUSAGE_SELF, &mut usage) };
        assert_eq!(code, 0, "getrusage fails only for a bad argument");
        let seconds = |time: libc::timeval| time.tv_sec as f64 + time.tv_usec as f64 / 1e6;
        Self {
            cpu_s: seconds(usage.ru_utime) + seconds(usage.ru_stime),
            minor_faults: usage.ru_minflt,
            major_faults: usage.ru_majflt,
        }
    }
}

/// CPU time of the calling thread, in nanoseconds.
pub(crate) fn thread_cpu_ns() -> u64 {
    let mut time = libc::timespec {
        tv_sec: 0,
        tv_nsec: 0,
    };
    // SAFETY: the pointer is to a timespec that this function owns; the call writes nothing else.
    let code = unsafe { libc::clock_gettime(libc::CLOCK_THREAD_CPUTIME_ID, &mut time) };
    assert_eq!(code, 0, "a thread has a clock");
    time.tv_sec as u64 * 1_000_000_000 + time.tv_nsec as u64
}
