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
