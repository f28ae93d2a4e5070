//! The most memory that the system allows this process, if a control group limits it. A process
//! with a larger budget would be killed instead of getting an error.

/// The lowest limit of the process's control group and the groups above it; `None` if there is no
/// limit, or if the system has no control groups.
pub fn limit_bytes() -> Option<u64> {
    let read = |path: &str| std::fs::read_to_string(path).ok();
    limit_in(&read("/proc/self/cgroup")?, read)
}

/// As `limit_bytes`, for the groups in the text of `/proc/self/cgroup`. Lines of the unified
/// hierarchy have the form `0::PATH`, and those of the older hierarchy `NUMBER:memory:PATH`.
fn limit_in(groups: &str, read: impl Fn(&str) -> Option<String>) -> Option<u64> {
    let limits = groups.lines().flat_map(|line| {
        let mut parts = line.splitn(3, ':').skip(1);
        let (controllers, path) = (parts.next().unwrap_or_default(), parts.next());
        let (root, name) = match controllers {
            "" => ("/sys/fs/cgroup", "memory.max"),
            _ => ("/sys/fs/cgroup/memory", "memory.limit_in_bytes"),
        };
        let is_memory = controllers.is_empty() || controllers.split(',').any(|one| one == "memory");
        let path = path.filter(|_| is_memory);
        let above = path.into_iter().flat_map(|path| std::path::Path::new(path).ancestors());
        above.map(move |group| {
            format!("{root}{}/{name}", group.display().to_string().trim_end_matches('/'))
        })
    });
    // Text that is not a number means no limit. The older hierarchy writes a number that exceeds
    // the memory of any machine.
    let limits = limits.filter_map(|file| read(&file)?.trim().parse::<u64>().ok());
    limits.filter(|limit| *limit < 1 << 60).min()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_least_limit_on_the_way_up_counts() {
        let files = [
            ("/sys/fs/cgroup/a/b/memory.max", "max\n"),
            ("/sys/fs/cgroup/a/memory.max", "300\n"),
            ("/sys/fs/cgroup/memory/c/memory.limit_in_bytes", "200\n"),
            ("/sys/fs/cgroup/memory/memory.limit_in_bytes", "9223372036854771712\n"),
        ];
        let read = |path: &str| {
            let found = files.iter().find(|(name, _)| *name == path);
            found.map(|(_, text)| text.to_string())
        };
        assert_eq!(limit_in("0::/a/b\n", read), Some(300));
        assert_eq!(limit_in("4:cpu:/c\n3:memory:/c\n", read), Some(200));
        assert_eq!(limit_in("3:cpu,memory:/\n0::/\n", read), None);
        assert_eq!(limit_in("", read), None);
    }
}
