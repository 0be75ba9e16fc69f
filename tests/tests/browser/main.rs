//! The pages in a real browser, with the real services behind them.

/// A test that runs functions one after the other with one browser and one stack, because their start takes most of the
/// time. Each function gets a new tab without cookies, and uses accounts of its own.
macro_rules! share_browser {
    ($name:ident, $browser:expr, $stack:expr, [$($case:ident),+ $(,)?]) => {
        #[tokio::test]
        async fn $name() {
            let Some(browser) = $browser.await else { return };
            let stack = $stack.await;
            $(
                eprintln!("{}", stringify!($case));
                browser.renew($crate::browser::Appearance::default()).await;
                $case(&browser, &stack).await;
            )+
        }
    };
}

mod browser;
mod dashboard;
mod docs;
mod home;
mod single_machine;
