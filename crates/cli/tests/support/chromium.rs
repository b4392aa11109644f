//! A headless Chromium, driven over its DevTools protocol: JSON objects through two pipes, a zero byte after each.

use std::io::{BufRead, BufReader, Write};
use std::process::{Child, ChildStdin, Command, Stdio};
use std::sync::mpsc::{Receiver, channel};
use std::thread;

use serde_json::{Value, json};

use super::support::PATIENCE;

/// Programs that are tried, in this order.
const PROGRAMS: [&str; 4] = ["chromium", "chromium-headless-shell", "chromium-browser", "google-chrome"];

/// One page of a browser with a profile of its own.
pub struct Browser {
    child: Child,
    commands: ChildStdin,
    messages: Receiver<Value>,
    last: u64,
    session: Option<String>,
    /// Exceptions of the page's script, and what the browser said was wrong with the page itself.
    pub complaints: Vec<String>,
    _profile: tempfile::TempDir,
}

impl Browser {
    /// `None` where no Chromium is installed.
    pub fn start() -> Option<Browser> {
        let runs = |program: &&str| {
            Command::new(program).arg("--version").output().is_ok_and(|output| output.status.success())
        };
        let program = PROGRAMS.iter().find(|program| runs(program))?;
        let profile = tempfile::tempdir().unwrap();
        // It reads commands from descriptor 3 and answers on 4.
        let mut child = Command::new("sh")
            .args(["-c", "exec \"$0\" \"$@\" 3<&0 4>&1 </dev/null >/dev/null 2>&1", program])
            .args([
                "--headless",
                "--remote-debugging-pipe",
                "--no-sandbox",
                "--disable-gpu",
                "--hide-scrollbars",
            ])
            .args([
                "--disable-dev-shm-usage",
                "--disable-background-networking",
                "--disable-component-update",
            ])
            .arg(format!("--user-data-dir={}", profile.path().display()))
            .arg("about:blank")
            .stdin(Stdio::piped())
            .stdout(Stdio::piped())
            .spawn()
            .unwrap();
        let commands = child.stdin.take().unwrap();
        let mut answers = BufReader::new(child.stdout.take().unwrap());
        let (found, messages) = channel();
        thread::spawn(move || {
            let mut message = Vec::new();
            while answers.read_until(0, &mut message).is_ok_and(|read| read > 0) {
                message.pop();
                if found.send(serde_json::from_slice(&message).expect("messages are JSON")).is_err() {
                    return;
                }
                message.clear();
            }
        });
        let (session, complaints) = (None, Vec::new());
        let mut browser =
            Browser { child, commands, messages, last: 0, session, complaints, _profile: profile };
        let made = browser.call("Target.createTarget", json!({ "url": "about:blank" }));
        let attach = json!({ "targetId": made["targetId"], "flatten": true });
        let attached = browser.call("Target.attachToTarget", attach);
        browser.session = Some(attached["sessionId"].as_str().unwrap().to_owned());
        for domain in ["Page", "Runtime", "Log"] {
            browser.call(&format!("{domain}.enable"), json!({}));
        }
        Some(browser)
    }

    /// Gives a command, and waits for its result.
    pub fn call(&mut self, method: &str, params: Value) -> Value {
        self.last += 1;
        let mut command = json!({ "id": self.last, "method": method, "params": params });
        if let Some(session) = &self.session {
            command["sessionId"] = session.as_str().into();
        }
        self.commands.write_all(format!("{command}\0").as_bytes()).unwrap();
        loop {
            let waited = self.messages.recv_timeout(PATIENCE);
            let mut message =
                waited.unwrap_or_else(|error| panic!("{method}: Chromium says nothing: {error}"));
            if message["id"] == self.last {
                assert!(message["error"].is_null(), "{method}: {message}");
                return message["result"].take();
            }
            self.note(&message);
        }
    }

    /// Takes note of an event that says that something is wrong. Requests that fail are no such: nodes are killed.
    fn note(&mut self, message: &Value) {
        let (params, entry) = (&message["params"], &message["params"]["entry"]);
        match message["method"].as_str() {
            Some("Runtime.exceptionThrown") => self.complaints.push(params.to_string()),
            Some("Log.entryAdded") if entry["level"] == "error" && entry["source"] != "network" => {
                self.complaints.push(entry.to_string());
            }
            _ => {}
        }
    }

    /// Makes the window so large, in pixels.
    pub fn resize(&mut self, width: u32, height: u32) {
        let size = json!({ "width": width, "height": height, "deviceScaleFactor": 1, "mobile": width < 600 });
        self.call("Emulation.setDeviceMetricsOverride", size);
    }

    /// Goes to a page; panics if the browser cannot reach it. It may load still.
    pub fn open(&mut self, url: &str) {
        let opened = self.call("Page.navigate", json!({ "url": url }));
        assert!(opened["errorText"].is_null(), "{url}: {opened}");
    }

    /// The value of an expression of JavaScript in the page; of a promise, what it comes to.
    pub fn value(&mut self, expression: &str) -> Value {
        let words = json!({ "expression": expression, "returnByValue": true, "awaitPromise": true });
        let mut result = self.call("Runtime.evaluate", words);
        assert!(result["exceptionDetails"].is_null(), "{expression}: {result}");
        result["result"]["value"].take()
    }

    /// The text that a part of the page shows.
    pub fn text(&mut self, selector: &str) -> String {
        let found = self.value(&format!("document.querySelector({selector:?})?.innerText"));
        found.as_str().unwrap_or_default().to_owned()
    }
}

impl Drop for Browser {
    fn drop(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}
