//! A headless Chromium, driven through chromedriver. The tests of a module share one.

use std::io::{BufRead, BufReader, Read, Write};
use std::net::{Ipv4Addr, SocketAddr, TcpStream};
use std::path::{Path, PathBuf};
use std::process::Stdio;
use std::time::{Duration, Instant};

use serde_json::json;
use tempfile::TempDir;
use testkit::process::is_alive;
use testkit::spawner::ChildGuard;
use testkit::tools::{require_installed, require_tool};
use testkit::wait::eventually_ok;
use thirtyfour::prelude::*;
use thirtyfour::{ChromeCapabilities, ChromiumLikeCapabilities};

/// Long, because the browser shares two cores with other tests.
pub const WAIT_TIMEOUT: Duration = Duration::from_secs(30);

/// Closing takes less than a second, but a busy machine may take longer.
const CLOSE_TIMEOUT: Duration = Duration::from_secs(10);

/// Theme and screen size.
#[derive(Debug, Clone, Copy, Default)]
pub struct Appearance {
    pub dark: bool,
    /// Emulates a phone that is 360 pixels wide.
    pub phone: bool,
}

/// A browser with one tab, closed on drop.
pub struct Browser {
    pub driver: WebDriver,
    chromedriver: ChildGuard,
    /// Port of chromedriver.
    port: u16,
    pid: u64,
    /// The profile, and temporary files of the browser and of chromedriver.
    dir: TempDir,
}

impl Drop for Browser {
    fn drop(&mut self) {
        // Without `leak`, thirtyfour would end the session over HTTP here, on a runtime that this drop blocks.
        let _ = self.driver.clone().leak();
        // On the request to end the session, chromedriver closes the browser and reaps it. If it does not (a command of
        // a failed test may still run), the browser exits when its pipe to chromedriver closes.
        let _ = self.end_session();
        self.chromedriver.kill();
        // Until the browser has exited, it writes to its directory, which is deleted next.
        let deadline = Instant::now() + WAIT_TIMEOUT;
        while is_alive(self.pid) && Instant::now() < deadline {
            std::thread::sleep(Duration::from_millis(5));
        }
    }
}

impl Browser {
    /// Returns `None` if Chromium or chromedriver is missing: the test must then be skipped.
    pub async fn start() -> Option<Self> {
        Self::start_with(&[]).await
    }

    /// Like [`Browser::start`], with more flags of Chromium.
    pub async fn start_with(flags: &[&str]) -> Option<Self> {
        if !require_tool("chromium") || !require_tool("chromedriver") {
            return None;
        }
        let dir = tempfile::Builder::new().prefix("chromium-").tempdir().expect("temporary directory");
        let (chromedriver, port) = start_chromedriver(dir.path());
        // Installs the TLS provider, which thirtyfour's client needs even for plain HTTP.
        let _ = testkit::http::client();
        let mut capabilities = capabilities(&dir.path().join("profile"));
        for flag in flags {
            capabilities.add_arg(flag).expect("the flag is added");
        }
        let driver = WebDriver::new(format!("http://127.0.0.1:{port}"), capabilities).await;
        let driver = driver.expect("the browser starts");
        let pid = driver.capabilities().get("goog:processID").and_then(serde_json::Value::as_u64);
        Some(Self { pid: pid.expect("the process ID of the browser"), driver, port, chromedriver, dir })
    }

    /// Opens a tab without the cookies, the settings and the log of what ran before, and closes all other tabs.
    pub async fn renew(&self, appearance: Appearance) {
        self.devtools("Network.clearBrowserCookies", json!({})).await;
        let old = self.driver.windows().await.expect("the tabs are listed");
        let new = self.driver.new_tab().await.expect("a tab opens");
        for tab in old {
            self.driver.switch_to_window(tab).await.expect("the tab is there");
            self.driver.close_window().await.expect("the tab closes");
        }
        self.driver.switch_to_window(new).await.expect("the new tab is there");
        self.set_appearance(appearance).await;
        self.console_errors().await;
    }

    /// Changes theme and screen size of the open tab. Without motion, the browser draws fewer frames.
    pub async fn set_appearance(&self, appearance: Appearance) {
        let theme = if appearance.dark { "dark" } else { "light" };
        let features = json!([
            {"name": "prefers-color-scheme", "value": theme},
            {"name": "prefers-reduced-motion", "value": "reduce"}
        ]);
        self.devtools("Emulation.setEmulatedMedia", json!({"features": features})).await;
        match appearance.phone {
            true => self.set_screen(360, 740).await,
            false => self.devtools("Emulation.clearDeviceMetricsOverride", json!({})).await,
        }
    }

    /// Emulates the screen of a phone.
    pub async fn set_screen(&self, width: u32, height: u32) {
        let screen = json!({"width": width, "height": height, "deviceScaleFactor": 2, "mobile": true});
        self.devtools("Emulation.setDeviceMetricsOverride", screen).await;
    }

    /// Process ID of the browser.
    pub fn pid(&self) -> u64 {
        self.pid
    }

    /// The directory of its profile and temporary files.
    pub fn dir(&self) -> &Path {
        self.dir.path()
    }

    /// Sends the request that closes the browser, and waits for the response. Blocks, for use in `drop`.
    fn end_session(&self) -> std::io::Result<()> {
        let address = SocketAddr::from((Ipv4Addr::LOCALHOST, self.port));
        let mut connection = TcpStream::connect_timeout(&address, CLOSE_TIMEOUT)?;
        connection.set_read_timeout(Some(CLOSE_TIMEOUT))?;
        connection.set_write_timeout(Some(CLOSE_TIMEOUT))?;
        let (path, host) = (format!("/session/{}", self.driver.session_id()), "Host: 127.0.0.1");
        write!(connection, "DELETE {path} HTTP/1.1\r\n{host}\r\nContent-Length: 0\r\n\r\n")?;
        connection.read(&mut [0; 256]).map(drop)
    }

    pub async fn goto(&self, url: &str) {
        self.driver.goto(url).await.expect("the page opens");
    }

    /// Waits until the first element that matches `css` is visible.
    pub async fn find(&self, css: &str) -> WebElement {
        eventually_ok(WAIT_TIMEOUT, format!("{css} is visible"), async || {
            let found = self.driver.find(By::Css(css)).await.map_err(|error| error.to_string())?;
            match found.is_displayed().await.map_err(|error| error.to_string())? {
                true => Ok(found),
                false => Err("hidden".to_owned()),
            }
        })
        .await
    }

    pub async fn click(&self, css: &str) {
        // The page refreshes periodically, so an element may be replaced before the click.
        eventually_ok(WAIT_TIMEOUT, format!("{css} is clickable"), async || {
            self.find(css).await.click().await
        })
        .await;
    }

    /// Clicks the button with this text inside `css`.
    pub async fn press(&self, css: &str, text: &str) {
        eventually_ok(WAIT_TIMEOUT, format!("button {text:?} in {css} is clicked"), async || {
            let buttons =
                self.driver.find_all(By::Css(format!("{css} button"))).await.map_err(|e| e.to_string())?;
            for button in buttons {
                if button.text().await.map_err(|error| error.to_string())? == text {
                    return button.click().await.map_err(|error| error.to_string());
                }
            }
            Err("not found".to_owned())
        })
        .await;
    }

    pub async fn fill(&self, css: &str, text: &str) {
        let input = self.find(css).await;
        input.clear().await.expect("the field is cleared");
        input.send_keys(text).await.expect("the field accepts text");
    }

    /// Waits until the first element that matches `css` contains `text`.
    pub async fn wait_for_text(&self, css: &str, text: &str) {
        eventually_ok(WAIT_TIMEOUT, format!("{css} contains {text:?}"), async || {
            let shown = self.find(css).await.text().await.map_err(|error| error.to_string())?;
            if shown.contains(text) { Ok(()) } else { Err(shown) }
        })
        .await;
    }

    /// Waits until no element matches `css`.
    pub async fn wait_gone(&self, css: &str) {
        eventually_ok(WAIT_TIMEOUT, format!("{css} is gone"), async || match self.count(css).await {
            0 => Ok(()),
            count => Err(format!("{count} elements")),
        })
        .await;
    }

    pub async fn count(&self, css: &str) -> usize {
        self.driver.find_all(By::Css(css)).await.map_or(0, |found| found.len())
    }

    pub async fn text(&self, css: &str) -> String {
        self.find(css).await.text().await.expect("the element has text")
    }

    /// Evaluates a JavaScript expression in the page.
    pub async fn eval(&self, script: &str) -> serde_json::Value {
        let result = self.driver.execute(format!("return {script}"), vec![]).await;
        result.expect("the script runs").json().clone()
    }

    /// Waits until a JavaScript expression has this value.
    pub async fn wait_for_value(&self, script: &str, expected: impl Into<serde_json::Value>) {
        let expected = expected.into();
        eventually_ok(WAIT_TIMEOUT, format!("{script} is {expected}"), async || {
            let value = self.eval(script).await;
            if value == expected { Ok(()) } else { Err(value.to_string()) }
        })
        .await;
    }

    /// Waits until the focused element has this tag and accessible name, such as "BUTTON Sign out".
    pub async fn wait_for_focus(&self, expected: &str) {
        let focused = "document.activeElement.tagName + ' ' + \
                       (document.activeElement.getAttribute('aria-label') ?? document.activeElement.innerText)";
        self.wait_for_value(focused, expected).await;
    }

    /// Types into whatever has the focus.
    pub async fn type_keys(&self, keys: impl Into<TypingData>) {
        self.driver.action_chain().send_keys(keys.into()).perform().await.expect("the keys are typed");
    }

    /// Runs a command of the Chrome DevTools Protocol.
    pub async fn devtools(&self, command: &str, parameters: serde_json::Value) {
        let session = self.driver.session_id();
        let url = format!("http://127.0.0.1:{}/session/{session}/goog/cdp/execute", self.port);
        let body = json!({"cmd": command, "params": parameters});
        let response = testkit::http::client().post(url).json(&body).send().await;
        assert_eq!(response.expect("chromedriver responds").status(), 200, "{command}");
    }

    /// Fails all requests whose URL matches one of these patterns, from now on.
    pub async fn block_urls(&self, patterns: &[&str]) {
        self.devtools("Network.enable", json!({})).await;
        self.devtools("Network.setBlockedURLs", json!({"urls": patterns})).await;
    }

    /// Saves a screenshot as `tests/artifacts/NAME.png`, for manual inspection, if `IP_LOOKUP_TEST_SCREENSHOTS` is set.
    pub async fn screenshot(&self, name: &str) {
        if std::env::var_os("IP_LOOKUP_TEST_SCREENSHOTS").is_none() {
            return;
        }
        let dir = PathBuf::from(concat!(env!("CARGO_MANIFEST_DIR"), "/artifacts"));
        std::fs::create_dir_all(&dir).expect("tests/artifacts is created");
        let image = self.driver.screenshot_as_png().await.expect("the browser takes a screenshot");
        std::fs::write(dir.join(format!("{name}.png")), image).expect("the screenshot is saved");
    }

    /// Checks that axe-core, installed by npm, finds no violation in the page.
    pub async fn check_axe(&self, state: &str) {
        let Some(axe) = require_installed("tests/node/node_modules/axe-core/axe.min.js") else { return };
        // Transitions change colors, so wait until they are over and only endless animations and delays run.
        let finished = "document.getAnimations().map(a => a.effect.getComputedTiming()) \
                        .every(timing => timing.iterations === Infinity || timing.duration === 0)";
        self.wait_for_value(finished, true).await;
        if self.eval("typeof axe").await == "undefined" {
            let axe = std::fs::read_to_string(axe).expect("axe is readable");
            self.driver.execute(axe, vec![]).await.expect("axe is loaded");
        }
        let script = "const done = arguments[0]; axe.run({resultTypes: ['violations']}).then(r => done(r.violations.map(v => \
                      v.id + ': ' + v.help + ' ' + v.nodes.map(n => n.html + ' ' + n.failureSummary).join(' | '))), e => done([String(e)]));";
        let violations = self.driver.execute_async(script, vec![]).await.expect("axe runs");
        assert_eq!(violations.json(), &json!([]), "{state}");
    }

    /// Checks that the page needs no horizontal scrolling, and takes a screenshot.
    pub async fn check_fits(&self, width: u32, name: &str) {
        self.screenshot(&format!("{name}-{width}")).await;
        let widths = self.eval("[innerWidth, document.documentElement.scrollWidth]").await;
        assert_eq!(widths, json!([width, width]), "{name} scrolls horizontally");
        let overflowing = "[...document.querySelectorAll('button, input, a, h1, h2, code, dd, svg')].filter(e => { \
               const r = e.getBoundingClientRect(); return r.width && (r.left < 0 || r.right > innerWidth + 0.5); }).map(e => e.outerHTML)";
        assert_eq!(self.eval(overflowing).await, json!([]), "{name}");
    }

    /// Messages in the browser's log: blocked resources, errors, violated policies.
    pub async fn console_errors(&self) -> Vec<String> {
        let log = self.driver.get_log("browser").await.expect("the browser's log is readable");
        let lines = log.into_iter().map(|entry| format!("{entry:?}"));
        // Some tests provoke 4xx responses, and the browser logs each: these messages are expected.
        lines.filter(|line| !line.contains("the server responded with a status of 4")).collect()
    }
}

/// Starts chromedriver on a free port. It takes a free IPv6 port and exits if another process has the same port in IPv4,
/// so several attempts may be needed. It and the browser write temporary files to `dir`.
fn start_chromedriver(dir: &Path) -> (ChildGuard, u16) {
    let attempt = || {
        let mut chromedriver = ChildGuard::spawn("chromedriver", |command| {
            command.arg("--port=0").env("TMPDIR", dir);
            command.stdin(Stdio::null()).stdout(Stdio::piped()).stderr(Stdio::null());
        });
        let port = port_of(&mut chromedriver)?;
        Some((chromedriver, port))
    };
    (0..10).find_map(|_| attempt()).expect("chromedriver starts in one of ten attempts")
}

/// The port in chromedriver's output; `None` if it exits before.
fn port_of(chromedriver: &mut ChildGuard) -> Option<u16> {
    let output = chromedriver.child().stdout.take().expect("stdout is piped");
    let mut lines = BufReader::new(output).lines().map_while(Result::ok);
    let line = lines.find(|line| line.contains("started successfully on port"))?;
    let port = line
        .trim_end_matches('.')
        .rsplit(' ')
        .next()
        .and_then(|port| port.parse().ok())
        .expect("the line ends with the port");
    // Keeps reading: otherwise chromedriver would block once the pipe is full.
    std::thread::spawn(move || lines.for_each(drop));
    Some(port)
}

fn capabilities(profile: &Path) -> ChromeCapabilities {
    let mut chrome = DesiredCapabilities::chrome();
    // The certificates of tests are from a CA that only the test knows.
    chrome.accept_insecure_certs(true).expect("the capability is set");
    let profile_dir = format!("--user-data-dir={}", profile.display());
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
        // The browser exits when the pipe closes, even if chromedriver is killed.
        "--remote-debugging-pipe",
        &profile_dir,
    ] {
        chrome.add_arg(flag).expect("the flag is added");
    }
    chrome
}
