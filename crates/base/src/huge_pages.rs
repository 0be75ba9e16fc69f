//! Memory pages of 2 MiB, for large buffers only.

/// Enables or disables pages of 2 MiB for memory that is used for the first time from now on. Programs disable them at
/// the start: for small objects, the allocator uses only a part of each page, which wasted 15 of the 34 MiB of an idle
/// service. An error is ignored: it costs only that memory, or the speed.
pub fn set_huge_pages(enabled: bool) {
    #[cfg(target_os = "linux")]
    let _ = rustix::thread::disable_transparent_huge_pages(!enabled);
}

/// Calls a function that fills a large buffer, such as a database, with huge pages enabled. What it has filled keeps
/// them. Reads at random addresses then miss the TLB less often, and a miss is expensive in a virtual machine. Until the
/// function returns, other threads get huge pages, too.
pub fn with_huge_pages<R>(fill: impl FnOnce() -> R) -> R {
    /// Also disables them if `fill` panics.
    struct DisableOnDrop;
    impl Drop for DisableOnDrop {
        fn drop(&mut self) {
            set_huge_pages(false);
        }
    }
    set_huge_pages(true);
    let _disable = DisableOnDrop;
    fill()
}
