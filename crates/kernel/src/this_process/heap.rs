//! Configures the heap of this process (mallopt(3), glibc).

/// Uses one heap for all threads: glibc gives each thread one of its own, with mostly
/// unused resident pages. For a program with a memory budget that allocates little.
/// Call it before the first thread starts; without glibc it does nothing.
pub fn share() {
    #[cfg(target_env = "gnu")]
    #[expect(unsafe_code, reason = "mallopt has no safe wrapper")]
    // SAFETY: mallopt takes two numbers, keeps no pointer, and takes the allocator's own lock; an unknown option
    // or value changes nothing.
    unsafe {
        libc::mallopt(libc::M_ARENA_MAX, 1);
    }
}

/// Returns unused pages of the heap to the kernel: glibc keeps those between pages
/// in use. It walks the whole heap, so call it when idle. Without glibc it does nothing.
pub fn give_back() {
    #[cfg(target_env = "gnu")]
    #[expect(unsafe_code, reason = "malloc_trim has no safe wrapper")]
    // SAFETY: malloc_trim takes a number, and touches only free memory, under the allocator's
    // own lock.
    unsafe {
        libc::malloc_trim(0);
    }
}

#[cfg(test)]
mod tests {
    use std::thread::spawn;

    #[test]
    fn threads_go_on_allocating_and_giving_back() {
        super::share();
        let made = spawn(|| vec![7_u8; 1 << 20]).join().unwrap();
        let given_back = spawn(move || made.iter().map(|byte| u64::from(*byte)).sum::<u64>());
        assert_eq!(given_back.join().unwrap(), 7 << 20);
        super::give_back();
        assert_eq!(vec![1_u8; 1 << 20].len(), 1 << 20);
    }
}
