//! How this process keeps its heap (mallopt(3), glibc).

/// Keeps the memory of all threads in one heap: glibc gives each thread one of its own, of which mostly
/// unused pages stay resident. For a program that measures itself by its memory and allocates little.
/// To be called before the first thread is started; elsewhere than with glibc it does nothing.
pub fn share() {
    #[cfg(target_env = "gnu")]
    #[expect(unsafe_code, reason = "mallopt has no safe wrapper")]
    // SAFETY: mallopt takes two numbers, keeps no pointer, and takes the allocator's own lock; an option
    // or value that the C library does not know changes nothing.
    unsafe {
        libc::mallopt(libc::M_ARENA_MAX, 1);
    }
}

/// Gives pages of the heap that hold nothing any more back to the kernel: glibc keeps those between pages
/// in use. It walks over the whole heap, so not in a hurry. Elsewhere than with glibc it does nothing.
pub fn give_back() {
    #[cfg(target_env = "gnu")]
    #[expect(unsafe_code, reason = "malloc_trim has no safe wrapper")]
    // SAFETY: malloc_trim takes a number, and touches only memory that nobody has, under the allocator's
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
