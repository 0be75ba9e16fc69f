//! A headless Chromium of its own for each test, driven through chromedriver.

use std::io::{BufRead, BufReader};
use std::path::{Path, PathBuf};
use std::process::Stdio;
use std::time::{Duration, Instant};

use e2e::spawner::ChildGuard;
use e2e::tools::require_tool;
use e2e::wait::eventually_ok;
use tempfile::TempDir;
use thirtyfour::prelude::*;
use thirtyfour::{ChromeCapabilities, ChromiumLikeCapabilities};

/// Two cores shared with every other test: a page may take its time.
pub const SOON: Duration = Duration::from_secs(30);

/// How the page is looked at.
#[derive(Debug, Clone, Copy, Default)]
pub struct Look {
    pub dark: bool,
    /// A phone of 360 pixels.
    pub phone: bool,
}

/// A browser with one tab; gone when dropped.
pub struct Browser {
    pub driver: WebDriver,
    process: ChildGuard,
    pid: u64,
    _profile: TempDir,
}

impl Drop for Browser {
    fn drop(&mut self) {
        // thirtyfour would end the session over HTTP from here, on a runtime that is blocked meanwhile.
        let _ = self.driver.clone().leak();
        self.process.kill();
        // The browser notices the end of the pipe; until it has, it writes into the folder that goes next.
        let end = Instant::now() + SOON;
        while Path::new(&format!("/proc/{}", self.pid)).exists() && Instant::now() < end {
            std::thread::sleep(Duration::from_millis(5));
        }
    }
}

impl Browser {
    /// Starts one; `None` where this machine has none and the test is skipped.
    pub async fn start(look: Look) -> Option<Self> {
        if !require_tool("chromium") || !require_tool("chromedriver") {
            return None;
        }
        let mut process = ChildGuard::spawn("chromedriver", |command| {
            command.arg("--port=0").stdin(Stdio::null()).stdout(Stdio::piped()).stderr(Stdio::null());
        });
        let port = port_of(&mut process);
        let profile = tempfile::Builder::new().prefix("chromium-").tempdir().expect("a temporary folder");
        // thirtyfour's client needs the cryptography provider too, though it speaks plain HTTP here.
        let _ = e2e::http::client();
        let driver = WebDriver::new(format!("http://127.0.0.1:{port}"), capabilities(look, &profile)).await;
        let driver = driver.expect("a browser");
        let pid = driver.capabilities().get("goog:processID").and_then(serde_json::Value::as_u64);
        Some(Self { pid: pid.expect("the browser's process"), driver, process, _profile: profile })
    }

    pub async fn goto(&self, url: &str) {
        self.driver.goto(url).await.expect("the page can be opened");
    }

    /// The first element that fits, as soon as it is there and to be seen.
    pub async fn find(&self, css: &str) -> WebElement {
        eventually_ok(SOON, format!("{css} is to be seen"), async || {
            let found = self.driver.find(By::Css(css)).await.map_err(|error| error.to_string())?;
            match found.is_displayed().await.map_err(|error| error.to_string())? {
                true => Ok(found),
                false => Err("hidden".to_owned()),
            }
        })
        .await
    }

    pub async fn click(&self, css: &str) {
        // Numbers refresh by themselves: an element may be replaced between finding and clicking it.
        eventually_ok(SOON, format!("{css} can be clicked"), async || self.find(css).await.click().await)
            .await;
    }

    /// Clicks the button with this text inside `css`.
    pub async fn press(&self, css: &str, text: &str) {
        eventually_ok(SOON, format!("a button {text} in {css}"), async || {
            let buttons =
                self.driver.find_all(By::Css(format!("{css} button"))).await.map_err(|e| e.to_string())?;
            for button in buttons {
                if button.text().await.map_err(|error| error.to_string())? == text {
                    return button.click().await.map_err(|error| error.to_string());
                }
            }
            Err("there is none".to_owned())
        })
        .await;
    }

    pub async fn fill(&self, css: &str, text: &str) {
        let input = self.find(css).await;
        input.clear().await.expect("a field");
        input.send_keys(text).await.expect("a field that takes text");
    }

    /// Waits until the element's text contains this.
    pub async fn sees(&self, css: &str, text: &str) {
        eventually_ok(SOON, format!("{css} says {text:?}"), async || {
            let shown = self.find(css).await.text().await.map_err(|error| error.to_string())?;
            if shown.contains(text) { Ok(()) } else { Err(shown) }
        })
        .await;
    }

    /// Waits until nothing fits.
    pub async fn gone(&self, css: &str) {
        eventually_ok(SOON, format!("{css} is gone"), async || match self.count(css).await {
            0 => Ok(()),
            count => Err(format!("{count} are there")),
        })
        .await;
    }

    pub async fn count(&self, css: &str) -> usize {
        self.driver.find_all(By::Css(css)).await.map_or(0, |found| found.len())
    }

    pub async fn text(&self, css: &str) -> String {
        self.find(css).await.text().await.expect("text")
    }

    /// The value of an expression in the page.
    pub async fn eval(&self, script: &str) -> serde_json::Value {
        let answer = self.driver.execute(format!("return {script}"), vec![]).await;
        answer.expect("the script runs").json().clone()
    }

    /// Keeps what is to be seen as `tests/artifacts/NAME.png`, to be looked at by people.
    pub async fn shot(&self, name: &str) {
        let folder = PathBuf::from(concat!(env!("CARGO_MANIFEST_DIR"), "/artifacts"));
        std::fs::create_dir_all(&folder).expect("the folder of artifacts");
        let image = self.driver.screenshot_as_png().await.expect("a screenshot");
        std::fs::write(folder.join(format!("{name}.png")), image).expect("the screenshot can be kept");
    }

    /// What the page complained about: a refused resource, an error, a violated policy.
    pub async fn complaints(&self) -> Vec<String> {
        let log = self.driver.get_log("browser").await.expect("the browser's log");
        let lines = log.into_iter().map(|entry| format!("{entry:?}"));
        // That a request was refused is what some tests are about; the browser notes each.
        lines.filter(|line| !line.contains("the server responded with a status of 4")).collect()
    }
}

fn port_of(process: &mut ChildGuard) -> u16 {
    let output = process.child().stdout.take().expect("stdout is piped");
    let mut lines = BufReader::new(output).lines().map_while(Result::ok);
    let line = lines.find(|line| line.contains("started successfully on port")).expect("chromedriver starts");
    let port =
        line.trim_end_matches('.').rsplit(' ').next().and_then(|port| port.parse().ok()).expect("its port");
    // Read on, or it would wait for us one day.
    std::thread::spawn(move || lines.for_each(drop));
    port
}

fn capabilities(look: Look, profile: &TempDir) -> ChromeCapabilities {
    let mut chrome = DesiredCapabilities::chrome();
    let scheme = format!("--blink-settings=preferredColorScheme={}", if look.dark { 0 } else { 1 });
    let folder = format!("--user-data-dir={}", profile.path().display());
    for flag in [
        "--headless",
        "--no-sandbox",
        "--disable-gpu",
        "--disable-quic",
        "--no-first-run",
        "--disable-background-networking",
        "--disable-component-update",
        "--disable-sync",
        "--disable-dev-shm-usage",
        "--window-size=1200,900",
        "--hide-scrollbars",
        // Over a pipe: the browser ends with the driver, however that ends.
        "--remote-debugging-pipe",
        &scheme,
        &folder,
    ] {
        chrome.add_arg(flag).expect("a flag");
    }
    if look.phone {
        let screen = serde_json::json!({"deviceMetrics": {"width": 360, "height": 740, "pixelRatio": 2.0}});
        chrome.add_experimental_option("mobileEmulation", screen).expect("an option");
    }
    chrome
}
